#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace kvasir::bench {

/// Ends the program with exit code 2 and one line on standard error. A benchmark that lost its
/// peer has no figure to report, so nothing is gained by unwinding the other threads.
[[noreturn]] void give_up(const std::string& what);

/// As `give_up`, with the text of errno.
[[noreturn]] void give_up_errno(const std::string& what);

struct endpoint {
  std::string host = "127.0.0.1"; ///< numeric IPv4
  std::uint16_t port = 0;
};

/// A blocking TCP connection. Every wait ends after the time-out given at connect; whatever
/// fails calls `give_up`.
///
/// Threading: not thread-safe; belongs to one thread at a time.
class tcp_socket {
public:
  /// @param no_delay switches Nagle's algorithm off; the stock Python client leaves it on.
  static tcp_socket connect_to(const endpoint& peer, bool no_delay,
                               std::chrono::seconds timeout);

  explicit tcp_socket(int fd) : fd_(fd) {}
  tcp_socket(tcp_socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  tcp_socket& operator=(tcp_socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~tcp_socket();

  /// Sends all parts, in one sendmsg when the kernel takes them. Consumes `parts`.
  void send_all(std::span<iovec> parts);

  void send_all(const void* data, std::size_t size);

  void receive_exact(void* data, std::size_t size);

  /// Receives what is there, at least one byte.
  std::size_t receive_some(void* data, std::size_t size);

private:
  int fd_;
};

/// An iovec over bytes that are only read; the C interface lacks the const.
inline iovec part(const void* data, std::size_t size) {
  return {const_cast<void*>(data), size};
}

} // namespace kvasir::bench
