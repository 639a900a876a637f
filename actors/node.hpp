// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/lm_server.hpp"
#include "actors/mp_server.hpp"
#include "actors/node_config.hpp"
#include "actors/storage_manager.hpp"
#include "backends/hold_board.hpp"
#include "backends/object_index.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/expected.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace kvasir {

class join_door;
class pool_keeper;
class http_server;

/// What the HTTP port and the command line show of a node.
struct node_status {
  std::string boot_id; ///< 32 hex digits, random per process.
  std::chrono::seconds uptime{0};
  std::string pool_name; ///< Below /dev/shm; empty if private.
  std::string pool_fallback_reason;
  uint64_t segment_lost = 0; ///< Times another process unlinked the segment's name.
  bool growing = false;      ///< The pool is still being faulted in.
  bool healthy = false;
  std::string unhealthy_reason;
  storage_status storage;
  front_door_status lm;
  front_door_status mp;
  front_door_status join; ///< Counters as `join_count`.
  session_status sessions;
  event_log_status events;
  std::vector<engine_status> engines;
  uint64_t io_requests = 0;
  uint64_t io_inline_resumes = 0;
  uint64_t io_scheduler_enqueues = 0;
  uint64_t io_foreign_replies = 0;
  uint64_t io_eventfd_writes = 0;
  uint64_t io_timed_out = 0;
  uint64_t http_wrong_protocol = 0; ///< Filled in by the HTTP port.
};

/// One kvasird: pool, actor system, storage manager, I/O units and front doors, started in this
/// order and stopped in the other. An embedding program may hold one, too.
///
/// Threading: `start`, `stop` and the destructor from one thread; the others from any.
class node {
public:
  /// Everything is allocated, bound and listening when this returns.
  /// @returns the node, or the first failure as one line of text.
  static caf::expected<std::unique_ptr<node>> start(const node_config& config);
  ~node();
  node(const node&) = delete;
  node& operator=(const node&) = delete;

  /// "lm=HOST:PORT mp=HOST:PORT http=HOST:PORT cluster=off", as in the line of readiness.
  std::string endpoints() const;
  uint16_t lm_port() const { return lm_port_; }
  uint16_t mp_port() const { return mp_port_; }
  uint16_t http_port() const { return http_port_; }

  /// Asks the actors; waits two seconds for each at most. Not beside or after `stop`. What does not
  /// answer makes it unhealthy.
  node_status status() const;

  const node_config& config() const { return config_; }
  const storage_manager_actor& manager() const { return manager_; }
  caf::actor_system& system() const { return *system_; }
  const shm_pool& pool() const { return *pool_; }

  /// Readable once a part died without which this process must not go on (an eventfd).
  int failure_fd() const { return failure_fd_; }

  /// Stops accepting, lets requests under way finish for up to `grace`, then ends everything.
  void stop(std::chrono::milliseconds grace);

private:
  explicit node(const node_config& config);
  caf::error open();
  caf::error open_pool();
  caf::error start_manager();
  caf::error open_lm_door();
  caf::error open_mp_door();
  caf::error open_join_door();
  caf::error open_http_door();

  node_config config_;
  std::string boot_id_;
  std::chrono::steady_clock::time_point started_;
  mp::token_hash first_hash_; ///< Stands in for the one before a prompt's first chunk.
  int failure_fd_ = -1;
  std::string host_text_; ///< As in an endpoint.
  uint16_t lm_port_ = 0;
  uint16_t mp_port_ = 0;
  uint16_t http_port_ = 0;

  // In the order of their construction; destroyed the other way round.
  std::unique_ptr<shm_pool> pool_;
  std::unique_ptr<object_index> index_; ///< If engines join.
  hold_board board_;
  std::unique_ptr<caf::actor_system_config> system_config_;
  std::unique_ptr<caf::actor_system> system_;
  storage_manager_actor manager_;
  std::vector<std::shared_ptr<io_unit>> units_; ///< Shared with the front doors, see `stop`.
  std::shared_ptr<io_unit> mp_unit_; ///< Its own: no lm:// connection waits for a long prompt.
  lm_server_actor lm_server_;
  kv_event_log_actor events_;
  session_table_actor sessions_;
  mp_server_actor mp_server_;
  const mp_door* mp_door_ = nullptr; ///< Of `mp_server_`.
  std::unique_ptr<join_door> join_door_;
  caf::actor supervisor_;
  std::unique_ptr<pool_keeper> keeper_;
  std::unique_ptr<http_server> http_;
  bool stopped_ = false;
};

} // namespace kvasir
