// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/timer_wheel.hpp"
#include "messages/session_messages.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// Who talks to the MP door, by routing id. LMCache's clients get a new one with each connection,
/// so that one whose connection is gone will not come again.
///
/// A descriptor in an event may be another connection's by now. Hence a closed connection only
/// makes its client *suspect*: traffic clears it, and only silence for a while makes it gone.
///
/// Threading: the door's thread.
class mp_clients {
public:
  using clock = timer_wheel::clock;

  struct client {
    client_id id = 0;
    int fd = -1;
    size_t under_way = 0; ///< Requests that wait for an answer.
    bool suspect = false;
    clock::time_point last_seen;
  };

  /// The client behind `routing_id`, new if need be.
  client& seen(std::string_view routing_id, int fd, clock::time_point now);

  client* find(client_id id);

  /// Whether that client's connection stands, as far as is known.
  bool connected(client_id id) const;

  /// The connection with this descriptor was closed.
  void closed(int fd);

  /// There is no connection to answer it by: its request was read after the connection's end.
  void unreachable(std::string_view routing_id);

  /// Forgets suspects that were silent for `limit`, and the idlest beyond the largest number of
  /// clients. @returns them.
  std::vector<client_id> take_gone(clock::time_point now, clock::duration limit);

  size_t count() const noexcept { return by_routing_id_.size(); }

private:
  static constexpr size_t max_clients = 16'384;

  client_id last_ = 0;
  std::unordered_map<std::string, client> by_routing_id_;
  std::unordered_map<client_id, client*> by_id_;
  std::unordered_map<int, client_id> by_fd_;
};

} // namespace kvasir
