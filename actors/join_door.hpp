// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/acceptor.hpp"
#include "actors/counter.hpp"
#include "actors/io_unit.hpp"
#include "actors/lm_door.hpp"
#include "actors/storage_manager.hpp"
#include "actors/unix_socket.hpp"
#include "backends/hold_board.hpp"
#include "backends/object_index.hpp"
#include "backends/shm_pool.hpp"
#include "messages/front_door_messages.hpp"
#include "messages/join_protocol.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <unordered_map>

namespace kvasir {

class join_connection;

/// What the node counts of the engines that joined it.
enum class join_count : uint8_t {
  joined,
  left,
  refused,
  requests,
  protocol_errors,
  foreign_leases,
  expired_writes,
  count_,
};

/// Indexed by `join_count`.
const std::array<count_info, static_cast<size_t>(join_count::count_)>& join_count_infos();

struct join_options {
  storage_manager_actor manager;
  join::welcome welcome;               ///< What every engine is told, but for `indexed`.
  const shm_pool* pool = nullptr;      ///< Shared; outlives the door.
  const object_index* index = nullptr; ///< Null: engines ask for all. Outlives the door,
  hold_board* board = nullptr;         ///< as this.
  uint64_t max_object_bytes = 0;
  size_t max_engines = 64;
  std::chrono::milliseconds write_ttl{
    600'000}; ///< A reservation keeps its key so long at most.
  std::chrono::seconds hello_deadline{5};
};

/// Where engines of this host join the node: a Unix socket (messages/join_protocol.hpp). It lends
/// each the pool and asks the storage manager in its name.
///
/// An engine may write into the pool as long as it lives, so what it reserved or holds ends only
/// when its connection does, which the kernel closes after the process' memory is gone. A
/// connection that breaks the protocol is not served any more, and stays open.
///
/// Threading: construct and `close` from any one thread; counters from any; the rest belongs to
/// the unit's. Blocking: `close` waits for the unit's thread.
class join_door {
public:
  join_door(io_unit& unit, unix_listener listener, join_options options);
  ~join_door();
  join_door(const join_door&) = delete;
  join_door& operator=(const join_door&) = delete;

  /// Ends all connections, in front of the node's own end: their leases are not given back.
  /// @pre the unit runs. Idempotent.
  void close();

  front_door_status status() const;
  const std::string& path() const noexcept { return listener_.path(); }

private:
  friend class join_connection;

  void accept(socket_handle socket);
  void remove(join_connection& connection);

  io_unit& unit_;
  unix_listener listener_;
  const join_options options_;
  counter_set<join_count> counters_;
  std::atomic<uint64_t> open_{0};
  std::unique_ptr<acceptor> acceptor_;
  std::unordered_map<join_connection*, std::unique_ptr<join_connection>> connections_;
  bool closed_ = false;
};

} // namespace kvasir
