// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/socket.hpp"
#include "messages/lm_frame.hpp"

#include <caf/expected.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace kvasir {

/// A blocking lm:// client of one connection.
///
/// Every wait ends: a call fails when the server neither takes nor sends a byte for the
/// time-out. After any failure the connection is of no more use.
/// Errors of all calls: `errc::peer_unreachable` (also: closed by the server), `timed_out`,
/// `malformed_frame` (the server does not speak lm://), `invalid_argument` (the key).
///
/// Threading: one thread.
class lm_client {
public:
  /// Fills a piece of the value, and says how many bytes it filled; 0 = there are no more.
  using source = std::function<size_t(std::span<std::byte>)>;
  /// Takes a piece of the value. @returns false to give up.
  using sink = std::function<bool(std::span<const std::byte>)>;

  static caf::expected<lm_client> connect(const std::string& host, uint16_t port,
                                          std::chrono::milliseconds timeout);

  caf::expected<bool> health();
  caf::expected<bool> exist(const std::string& key);

  /// Sends a value of `size_bytes` bytes, then asks whether it is there: lm:// itself does not
  /// acknowledge a PUT.
  /// @returns the answer, or `errc::io_error` if the source ended early.
  caf::expected<bool> put(const std::string& key, const object_layout& layout,
                          uint32_t size_bytes, const source& next);

  struct value_info {
    uint32_t size_bytes = 0;
    object_layout layout;
  };

  /// Asks for a value. If there is one, `receive` must follow.
  caf::expected<std::optional<value_info>> get(const std::string& key);

  /// The value's bytes, piece by piece.
  /// @returns nothing, or also `errc::io_error` if the sink gave up.
  caf::error receive(uint32_t size_bytes, const sink& take);

private:
  lm_client(socket_handle socket, std::string peer) noexcept;

  caf::error send_header(lm::command op, const std::string& key, const object_layout& layout,
                         uint32_t size_bytes);
  caf::error send(std::span<const std::byte> bytes);
  caf::error receive_all(std::span<std::byte> bytes);
  caf::expected<lm::server_header> reply();
  caf::expected<bool> ask(lm::command op, const std::string& key);
  caf::error failure(const char* doing) const;

  socket_handle socket_;
  std::string peer_;
};

} // namespace kvasir
