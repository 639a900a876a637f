// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/expected.hpp>
#include <zmq.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// One request as it came, frame by frame.
struct mp_request {
  zmq::message_t peer; ///< The routing id that a reply starts with.
  zmq::message_t uid;  ///< Echoed, never read.
  zmq::message_t operation;
  std::vector<zmq::message_t> arguments;
  int fd = -1; ///< Of the connection it came by; may be closed by now.
};

/// What happened to connections, from the socket's monitor.
enum class mp_connection_event : uint8_t {
  closed,
  closed_unused, ///< Without any request: perhaps another protocol's client.
  not_zmtp,      ///< The handshake failed, which ends the connection.
};

/// The ROUTER socket of the MP front door, without a delimiter frame.
///
/// Nothing here waits. Sending to a peer that is gone, or that does not read, fails at once
/// (`ROUTER_MANDATORY`): a ROUTER without it drops replies silently.
///
/// Threading: `open` on any thread, then one thread only.
class mp_socket {
public:
  struct limits {
    uint64_t max_frame_bytes = 1ull << 30;
    int max_queued_requests = 256;  ///< Per peer, before its TCP connection stalls.
    int max_queued_replies = 1'000; ///< Per peer.
  };

  enum class received : uint8_t { request, unusable, nothing };
  enum class sent : uint8_t { yes, peer_gone, peer_slow, failed };

  /// Binds to `host`; port 0 takes a free one.
  /// @returns the socket, or `errc::io_error` with one line.
  static caf::expected<std::unique_ptr<mp_socket>> open(const std::string& host, uint16_t port,
                                                        const limits& how);
  ~mp_socket();

  uint16_t port() const { return port_; }

  /// Becomes readable when there may be something to receive. Edge-triggered: read until
  /// nothing is left, and look again after sending.
  int fd();
  int monitor_fd();

  /// @returns `unusable` for a message without uid and operation, or with one of these two beyond
  /// its limit: it is taken off the queue.
  received receive(mp_request& request);

  /// Sends one reply; `result` may be empty (no frame) for void.
  sent send(const mp_request& to, zmq::message_t* result);

  /// As `send`, with this frame in the place of the operation.
  sent send_as(const mp_request& to, zmq::message_t operation, zmq::message_t* result);

  /// @param fd of the connection, -1 if that is not known
  /// @returns false if there is no event.
  bool next_event(mp_connection_event& event, int& fd);

private:
  mp_socket() = default;

  static constexpr size_t max_arguments = 8;
  static constexpr size_t max_uid_bytes = 256;
  /// The longest operation that exists has 41 bytes; longer ones are answered like all unknown.
  static constexpr size_t max_operation_bytes = 64 << 10;

  zmq::context_t context_{1};
  zmq::socket_t router_;
  zmq::socket_t monitor_;
  uint16_t port_ = 0;
  std::unordered_map<int, bool> connections_; ///< By descriptor: has it sent a request?
};

} // namespace kvasir
