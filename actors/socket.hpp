// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {

/// Owns one socket and closes it. Threading: as the file descriptor's.
class socket_handle {
public:
  socket_handle() = default;
  explicit socket_handle(int fd) noexcept : fd_(fd) {}
  socket_handle(socket_handle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  socket_handle& operator=(socket_handle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~socket_handle();

  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

private:
  int fd_ = -1;
};

/// Sockets that listen on one port, and where.
struct listening_sockets {
  std::vector<socket_handle> sockets;
  uint16_t port = 0;
};

/// Listens on every address that `host` names; `::` serves IPv4 too. Port 0 takes a free one,
/// the same for all addresses. Sockets are non-blocking, with `SO_REUSEADDR`.
/// @returns the sockets, or `errc::io_error` with one line that names host, port and cause.
caf::expected<listening_sockets> listen_on(const std::string& host, uint16_t port);

/// Connects within `timeout_ms`; the socket is blocking, with send and receive time-outs.
/// @returns the socket, or `errc::peer_unreachable` with one line.
caf::expected<socket_handle> connect_to(const std::string& host, uint16_t port, int timeout_ms);

/// What every accepted connection gets: no Nagle delay, and keep-alive probes that notice a
/// vanished host after about a minute.
void set_connection_options(int fd);

/// Acknowledges at once what the kernel received. Not sticky: arm it again whenever the socket
/// runs dry in the middle of a request. Without it a client with Nagle's algorithm, as
/// LMCache's, waits 40 ms between a header and its value (docs/decisions/0001).
void acknowledge_now(int fd);

} // namespace kvasir
