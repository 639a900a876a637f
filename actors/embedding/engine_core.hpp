// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/caller_unit.hpp"
#include "actors/embedding/client_gate.hpp"
#include "actors/embedding/engine_options.hpp"
#include "actors/embedding/joined_pool.hpp"
#include "actors/embedding/node_index.hpp"
#include "actors/embedding/node_link.hpp"
#include "actors/embedding/pending_calls.hpp"
#include "actors/embedding/prompt.hpp"
#include "actors/io_unit.hpp"
#include "actors/pool_keeper.hpp"
#include "actors/storage_manager.hpp"
#include "actors/worker_pool.hpp"

#include <caf/actor_config.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/make_actor.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {

/// What a client did since it was opened.
struct engine_counters {
  std::atomic<uint64_t> index_lookups{0}; ///< Answered by the joined node's index.
  std::atomic<uint64_t> asked_lookups{0}; ///< By the storage manager.
};

/// What a client, its calls, holds and tensors share: pool, manager, threads. Knows bytes, no
/// tensors. Pool and manager are its own, or those of the node that it joined.
///
///   open --> serving --close--> closed: the pool's memory, for tensors that are still there
///
/// Threading: any thread, but for `open`. `close` waits for all threads of the client's; in one
/// of them it closes on another thread and returns at once.
class engine_core : public std::enable_shared_from_this<engine_core> {
public:
  /// @param lent null: a system of its own.
  static caf::expected<std::shared_ptr<engine_core>> open(const engine_options& options,
                                                          caf::actor_system* lent);
  ~engine_core();
  engine_core(const engine_core&) = delete;
  engine_core& operator=(const engine_core&) = delete;

  void close();

  /// Starts a call. Once closed, `sink` is given `errc::cancelled` instead.
  template <class Operation, class Sink, class... Args>
  void launch(pending_calls::clock::time_point deadline, std::stop_token stop, Sink sink,
              Args&&... args) {
    client_gate::entry inside{gate_};
    if (!inside) {
      sink->settle(caf::make_error(errc::cancelled, "the client is closed"));
      return;
    }
    caf::actor_config config{nullptr};
    auto call = caf::make_actor<Operation, caf::strong_actor_ptr>(
      system_->next_actor_id(), system_->node(), system_, config, shared_from_this(), deadline,
      std::move(stop), std::move(sink), std::forward<Args>(args)...);
    static_cast<Operation*>(call->get())->start();
  }

  /// Ends holds and reservations. Once closed, those of the manager end with it, or with the link.
  void end_leases(std::vector<lease_id> leases);

  /// Drops an object whose bytes differ from their checksum.
  void drop_corrupt(object_key key);

  /// Runs `job` on the I/O unit, soon.
  void post(std::function<void()> job) { io_unit_->post(std::move(job)); }

  /// Runs `job` on a copying thread. @returns false if there is no room for it.
  bool submit(std::function<void()> job);

  /// @returns false if there are too many.
  bool add_pending(operation& what);

  const engine_options& options() const noexcept { return options_; }
  std::byte* pool() const noexcept { return own_pool_ ? own_pool_->data() : joined_.data(); }
  caller_unit& unit() noexcept { return *unit_; }
  const storage_manager_actor& manager() const noexcept { return manager_; }
  pending_calls& pending() noexcept { return pending_; }
  owner_id owner() const noexcept { return owner_; }
  const object_layout& stored_as() const noexcept { return stored_as_; }
  uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
  engine_counters& counters() noexcept { return counters_; }

  /// Of the node; null if it has none, or none was joined.
  node_index* index() noexcept { return index_ ? &*index_ : nullptr; }

  /// False once the joined node is known to be gone.
  bool node_answers() const noexcept { return !link_ || link().answers(); }
  const mp::token_hasher& hasher() const noexcept { return hasher_; }

  std::shared_ptr<const chunk_names> names_of(std::string tenant) const;
  const std::shared_ptr<const chunk_names>& plain_names() const noexcept {
    return plain_names_;
  }

private:
  /// Looks for deadlines that passed, while any call waits. On the I/O unit.
  class deadline_watch final : public wheel_timer {
  public:
    explicit deadline_watch(engine_core& core) noexcept : core_(core) {}

  private:
    void on_timer() override;
    engine_core& core_;
  };

  engine_core(const engine_options& options, caf::actor_system* lent);
  caf::error start();
  caf::error open_pool();
  void start_system();
  caf::error start_manager();
  caf::error join();
  caf::error accept_welcome(const join::welcome& welcome);
  void leave_logger();
  node_link& link() const { return *static_cast<node_link*>(link_->get()); }
  bool on_own_thread() const noexcept;
  void shut_down();
  void end_manager();

  const engine_options options_;
  const owner_id owner_ = next_owner_id();
  const uint64_t chunk_bytes_;
  const object_layout stored_as_;
  mp::token_hasher hasher_; ///< The node's, if joined.
  std::shared_ptr<const chunk_names> plain_names_;
  client_gate gate_;
  pending_calls pending_;
  engine_counters counters_;
  std::once_flag closed_;

  // In the order of their construction. The pool lives as long as this; it is unmapped before the
  // node, if joined, learns of the end by the link's socket.
  std::unique_ptr<shm_pool> own_pool_;
  caf::strong_actor_ptr link_; ///< A `node_link`.
  joined_pool joined_;
  std::optional<node_index> index_;
  std::unique_ptr<caf::actor_system_config> system_config_; ///< Of a system of its own.
  std::unique_ptr<caf::actor_system> own_system_;
  caf::actor_system* system_;
  std::unique_ptr<caller_unit> unit_; ///< Outlives the manager.
  storage_manager_actor manager_;
  std::unique_ptr<io_unit> io_unit_;
  std::unique_ptr<deadline_watch> watch_; ///< Armed in the I/O unit.
  std::unique_ptr<pool_keeper> keeper_;
  std::unique_ptr<worker_pool> workers_;
};

} // namespace kvasir
