#include "resp_client.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

namespace kvasir::bench {

namespace {

/// Appends `$<size>\r\n<text>\r\n`.
void append_bulk(std::string& to, std::string_view text) {
  to += '$';
  to += std::to_string(text.size());
  to += "\r\n";
  to += text;
  to += "\r\n";
}

std::string set_header(const std::string& key, std::size_t value_size) {
  std::string result = "*3\r\n$3\r\nSET\r\n";
  append_bulk(result, key);
  result += '$';
  result += std::to_string(value_size);
  result += "\r\n";
  return result;
}

} // namespace

bool resp_client::put(const std::string& key, std::span<const char> value) {
  auto header = set_header(key, value.size());
  std::array<iovec, 3> parts{part(header.data(), header.size()),
                             part(value.data(), value.size()), part("\r\n", 2)};
  socket_.send_all(parts);
  return read_line() == "+OK";
}

bool resp_client::get(const std::string& key, std::span<char> into) {
  requests_ = "*2\r\n$3\r\nGET\r\n";
  append_bulk(requests_, key);
  socket_.send_all(requests_.data(), requests_.size());
  auto line = read_line();
  if (line.empty() || line.front() != '$')
    return false;
  std::int64_t size = -1;
  std::from_chars(line.data() + 1, line.data() + line.size(), size);
  if (size < 0)
    return false; // the null bulk string of a miss has no body
  if (static_cast<std::size_t>(size) != into.size()) {
    drop_bulk(static_cast<std::size_t>(size));
    return false;
  }
  read_bytes(into.data(), into.size());
  std::array<char, 2> line_end;
  read_bytes(line_end.data(), line_end.size());
  return true;
}

std::size_t resp_client::exist(std::span<const std::string> keys) {
  requests_.clear();
  for (const auto& key : keys) {
    requests_ += "*2\r\n$6\r\nEXISTS\r\n";
    append_bulk(requests_, key);
  }
  socket_.send_all(requests_.data(), requests_.size());
  std::size_t found = 0;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (read_line() == ":1")
      ++found;
  return found;
}

void resp_client::put_all(std::span<const std::string> keys, std::span<const char> value) {
  constexpr std::size_t batch_count = 256;
  std::vector<std::string> headers;
  std::vector<iovec> parts;
  for (; !keys.empty(); keys = keys.subspan(std::min(batch_count, keys.size()))) {
    auto batch = keys.first(std::min(batch_count, keys.size()));
    headers.clear();
    for (const auto& key : batch)
      headers.push_back(set_header(key, value.size()));
    parts.clear();
    for (const auto& header : headers) {
      parts.push_back(part(header.data(), header.size()));
      parts.push_back(part(value.data(), value.size()));
      parts.push_back(part("\r\n", 2));
    }
    socket_.send_all(parts);
    for (std::size_t i = 0; i < batch.size(); ++i)
      read_line();
  }
}

std::string_view resp_client::read_line() {
  line_.clear();
  for (;;) {
    auto* from = buffer_.data() + begin_;
    auto* to = buffer_.data() + end_;
    auto* newline = std::find(from, to, '\n');
    line_.append(from, newline);
    if (newline != to) {
      begin_ += static_cast<std::size_t>(newline - from) + 1;
      if (!line_.empty() && line_.back() == '\r')
        line_.pop_back();
      return line_;
    }
    end_ = socket_.receive_some(buffer_.data(), buffer_.size());
    begin_ = 0;
  }
}

void resp_client::read_bytes(char* to, std::size_t size) {
  auto left_over = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, left_over);
  begin_ += left_over;
  socket_.receive_exact(to + left_over, size - left_over);
}

void resp_client::drop_bulk(std::size_t size) {
  std::array<char, 4096> scrap;
  for (size += 2; size > 0;) { // with its CR LF
    auto piece = std::min(size, scrap.size());
    read_bytes(scrap.data(), piece);
    size -= piece;
  }
}

} // namespace kvasir::bench
