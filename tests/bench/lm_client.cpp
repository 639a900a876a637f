#include "lm_client.hpp"

#include "lm_frame.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace kvasir::bench {

bool lm_client::put(const std::string& key, std::span<const char> value) {
  auto length = static_cast<std::int32_t>(value.size());
  auto put_header = lm::make_request(lm::command::put, key, length);
  auto exist_header = lm::make_request(lm::command::exist, key);
  if (split_sends_) {
    socket_.send_all(put_header.data(), put_header.size());
    socket_.send_all(value.data(), value.size());
    socket_.send_all(exist_header.data(), exist_header.size());
  } else {
    std::array<iovec, 3> parts{part(put_header.data(), put_header.size()),
                               part(value.data(), value.size()),
                               part(exist_header.data(), exist_header.size())};
    socket_.send_all(parts);
  }
  lm::reply_bytes reply;
  socket_.receive_exact(reply.data(), reply.size());
  return lm::field(reply, 0) == lm::code_ok;
}

bool lm_client::get(const std::string& key, std::span<char> into) {
  auto header = lm::make_request(lm::command::get, key);
  socket_.send_all(header.data(), header.size());
  lm::reply_bytes reply;
  socket_.receive_exact(reply.data(), reply.size());
  auto length = lm::field(reply, 1);
  if (length < 0)
    give_up("a reply with a negative length");
  auto size = static_cast<std::size_t>(length);
  if (lm::field(reply, 0) != lm::code_ok || size != into.size()) {
    drop(size);
    return false;
  }
  socket_.receive_exact(into.data(), into.size());
  return true;
}

std::size_t lm_client::exist(std::span<const std::string> keys) {
  requests_.clear();
  for (const auto& key : keys) {
    auto header = lm::make_request(lm::command::exist, key);
    requests_.insert(requests_.end(), header.begin(), header.end());
  }
  socket_.send_all(requests_.data(), requests_.size());
  replies_.resize(keys.size() * std::tuple_size_v<lm::reply_bytes>);
  socket_.receive_exact(replies_.data(), replies_.size());
  std::size_t found = 0;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (lm::field(replies_, i * 9) == lm::code_ok)
      ++found;
  return found;
}

void lm_client::put_all(std::span<const std::string> keys, std::span<const char> value) {
  // An iovec per header and per value; the kernel takes at most 1024 in one call.
  constexpr std::size_t batch_count = 256;
  std::vector<lm::request_bytes> headers;
  std::vector<iovec> parts;
  for (; !keys.empty(); keys = keys.subspan(std::min(batch_count, keys.size()))) {
    auto batch = keys.first(std::min(batch_count, keys.size()));
    headers.clear();
    for (const auto& key : batch)
      headers.push_back(
        lm::make_request(lm::command::put, key, static_cast<std::int32_t>(value.size())));
    headers.push_back(lm::make_request(lm::command::exist, batch.back()));
    parts.clear();
    for (const auto& header : headers) {
      parts.push_back(part(header.data(), header.size()));
      parts.push_back(part(value.data(), value.size()));
    }
    parts.pop_back(); // the EXIST has no value
    socket_.send_all(parts);
    lm::reply_bytes reply;
    socket_.receive_exact(reply.data(), reply.size());
  }
}

void lm_client::drop(std::size_t size) {
  std::array<char, 65536> scrap;
  while (size > 0) {
    auto piece = std::min(size, scrap.size());
    socket_.receive_exact(scrap.data(), piece);
    size -= piece;
  }
}

} // namespace kvasir::bench
