// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/socket.hpp"

#include <caf/expected.hpp>

#include <chrono>
#include <span>
#include <string>
#include <vector>

/// Stream sockets of this host, which can carry file descriptors.
namespace kvasir {

/// A listening socket's path; removed with it, unless it leads to another by then.
class unix_listener {
public:
  /// Listens, for this user's processes only (mode 0600). A socket that nobody listens on any more
  /// is replaced.
  /// @returns it, or `errc::io_error` with one line that names the path and the cause.
  static caf::expected<unix_listener> open(const std::string& path);

  unix_listener() = default;
  unix_listener(unix_listener&&) noexcept = default;
  unix_listener& operator=(unix_listener&&) noexcept = default;

  /// Removes the path. The socket goes on. Idempotent.
  void withdraw();

  /// The socket, non-blocking, whose owner the caller becomes.
  socket_handle take_socket() { return std::move(socket_); }

  const std::string& path() const noexcept { return path_; }

private:
  std::string path_;
  uint64_t inode_ = 0;
  socket_handle socket_;
};

/// Connects. The socket is blocking; sending and receiving take `timeout` at most.
/// @returns it, or `errc::peer_unreachable` with one line.
caf::expected<socket_handle> connect_to_path(const std::string& path,
                                             std::chrono::milliseconds timeout);

/// Whether the process at the other end belongs to this user.
bool peer_is_same_user(int fd);

/// Sends bytes, and file descriptors (at most 4) with the first of them.
/// @returns how many bytes were taken, or -1 with errno.
ssize_t send_with_fds(int socket, std::span<const char> bytes, std::span<const int> fds);

/// Receives bytes, and whatever file descriptors (at most 4) come with them, close-on-exec.
/// @returns how many bytes, 0 at the end, or -1 with errno.
ssize_t receive_with_fds(int socket, std::span<char> into, std::vector<socket_handle>& fds);

} // namespace kvasir
