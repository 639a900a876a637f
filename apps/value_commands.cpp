#include "apps/client_commands.hpp"
#include "apps/client_errors.hpp"
#include "apps/lm_client.hpp"
#include "apps/progress.hpp"
#include "messages/lm_shape.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

namespace kvasir::client {

namespace {

using json = nlohmann::ordered_json;

std::string errno_text() {
  return std::generic_category().message(errno);
}

/// Writes all. @returns false on an error (errno).
bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    auto written = write(fd, bytes.data(), bytes.size());
    if (written > 0)
      bytes = bytes.subspan(static_cast<size_t>(written));
    else if (errno != EINTR)
      return false;
  }
  return true;
}

size_t read_some(int fd, std::span<std::byte> to) {
  ssize_t got = -1;
  do
    got = read(fd, to.data(), to.size());
  while (got < 0 && errno == EINTR);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

/// A value to send: a regular file is read while it is sent, anything else before.
class input {
public:
  /// @returns what is wrong, or nothing.
  std::string open(const std::string& file) {
    fd_ = file == "-" ? socket_handle{dup(STDIN_FILENO)}
                      : socket_handle{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat found {};
    if (!fd_ || fstat(fd_.fd(), &found) != 0)
      return "cannot read " + file + ": " + errno_text();
    if (S_ISDIR(found.st_mode))
      return "cannot read " + file + ": it is a directory";
    if (S_ISREG(found.st_mode) && file != "-") {
      size_ = static_cast<uint64_t>(found.st_size);
    } else {
      read_to_end();
      size_ = buffered_.size();
    }
    if (size_ > max_size)
      return file + " is larger than " + std::to_string(max_size)
             + " bytes, the longest value of lm://";
    return {};
  }

  uint32_t size_bytes() const { return static_cast<uint32_t>(size_); }

  size_t next(std::span<std::byte> to) {
    if (buffered_.empty())
      return read_some(fd_.fd(), to);
    auto count = std::min(to.size(), buffered_.size() - given_);
    std::copy_n(buffered_.begin() + static_cast<ptrdiff_t>(given_), count, to.begin());
    given_ += count;
    return count;
  }

private:
  static constexpr uint64_t max_size = std::numeric_limits<int32_t>::max();

  void read_to_end() {
    constexpr size_t piece = 1 << 20;
    for (size_t got = 1; got > 0 && buffered_.size() <= max_size;) {
      auto end = buffered_.size();
      buffered_.resize(end + piece);
      got = read_some(fd_.fd(), std::span{buffered_}.subspan(end));
      buffered_.resize(end + got);
    }
  }

  socket_handle fd_; // Closes any descriptor.
  uint64_t size_ = 0;
  std::vector<std::byte> buffered_;
  size_t given_ = 0;
};

/// Where a value goes. A file appears under its name when it is complete.
class output {
public:
  std::string open(const std::string& file) {
    if (file.empty() || file == "-") {
      fd_ = socket_handle{dup(STDOUT_FILENO)};
      return {};
    }
    name_ = file;
    std::error_code ignored;
    auto kind = std::filesystem::status(file, ignored).type();
    if (kind == std::filesystem::file_type::not_found
        || kind == std::filesystem::file_type::regular)
      partial_ = file + ".part";
    fd_ = socket_handle{::open((partial_.empty() ? file : partial_).c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    return fd_ ? "" : "cannot write " + file + ": " + errno_text();
  }

  ~output() {
    if (!partial_.empty())
      unlink(partial_.c_str());
  }

  int fd() const { return fd_.fd(); }

  std::string finish() {
    if (partial_.empty())
      return {};
    if (rename(partial_.c_str(), name_.c_str()) != 0)
      return "cannot write " + name_ + ": " + errno_text();
    partial_.clear();
    return {};
  }

private:
  socket_handle fd_;
  std::string name_;
  std::string partial_;
};

caf::expected<lm_client> connect(const options& how) {
  if (!how.lm_port)
    return caf::make_error(errc::invalid_argument, "this needs the lm:// port");
  return lm_client::connect(how.host, *how.lm_port, how.timeout);
}

json description(const std::string& key, uint32_t size_bytes, const object_layout& layout) {
  return {{"key", key},
          {"size_bytes", size_bytes},
          {"format", lm::format_name(layout.format)},
          {"dtype", lm::dtype_name(layout.dtype)},
          {"shape", layout.shape}};
}

void print(FILE* to, const json& value) {
  std::fprintf(to, "%s\n", value.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
}

} // namespace

int put(const options& how, const std::string& key, const std::string& file,
        object_layout layout, bool has_shape) {
  input value;
  if (auto wrong = value.open(file); !wrong.empty())
    return fail(usage, wrong);
  auto size = value.size_bytes();
  if (!has_shape)
    layout.shape = {static_cast<int32_t>(size), 0, 0, 0};
  if (lm::contradicts(layout, size))
    return fail(usage, "the value has " + std::to_string(size) + " bytes, shape and dtype for "
                         + std::to_string(lm::byte_size(layout).value_or(0)));
  auto server = connect(how);
  if (!server)
    return fail(server.error());
  progress shown{"put", size};
  auto stored = server->put(key, layout, size, [&](std::span<std::byte> to) {
    auto count = value.next(to);
    shown.add(count);
    return count;
  });
  shown.end();
  if (!stored)
    return fail(stored.error());
  if (!*stored)
    return fail(failed, "the server did not keep the value (too large, no room, or its shape "
                        "contradicts its length): see its log");
  if (how.json)
    print(stdout, description(key, size, layout));
  return ok;
}

int get(const options& how, const std::string& key, const std::string& file) {
  if (file.empty() && isatty(STDOUT_FILENO) == 1)
    return fail(usage, "a value is binary: name a file, or say - for the terminal");
  auto server = connect(how);
  if (!server)
    return fail(server.error());
  auto found = server->get(key);
  if (!found)
    return fail(found.error());
  if (!*found)
    return fail(not_found, "no object has the key " + key);
  const auto& info = **found;
  output to;
  if (auto wrong = to.open(file); !wrong.empty())
    return fail(failed, wrong);
  progress shown{"get", info.size_bytes};
  auto wrong = server->receive(info.size_bytes, [&](std::span<const std::byte> piece) {
    shown.add(piece.size());
    return write_all(to.fd(), piece);
  });
  shown.end();
  if (wrong)
    return fail(wrong);
  if (auto text = to.finish(); !text.empty())
    return fail(failed, text);
  if (how.json)
    print(file.empty() || file == "-" ? stderr : stdout,
          description(key, info.size_bytes, info.layout));
  return ok;
}

} // namespace kvasir::client
