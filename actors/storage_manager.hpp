// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/lease_table.hpp"
#include "backends/memory_tier.hpp"
#include "messages/chunk_messages.hpp"
#include "messages/storage_messages.hpp"

#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace kvasir {

/// Owns the memory tier and serialises all access to it.
///
/// Every request is answered exactly once, with the value named here or an error of category
/// `kvasir`. Handlers never block, never touch payload and cost no more than their request, so
/// I/O units run them in passing; work over the whole index comes in slices.
///
/// A request that finds no room waits in a queue of bounded length for what others give back;
/// it is the asker's deadline that ends the wait, by `end_owner`.
using storage_manager_actor = caf::typed_actor<
  /// Errors: `too_large`, `out_of_memory` if nothing will give way, `busy` if the queue is
  /// full, `not_reserved` if the owner ended while it waited, `peer_unreachable` if the manager
  /// did.
  caf::replies_to<reserve_write>::with<write_lease>,
  /// Errors: `not_reserved`: the lease is not there (any more), nothing was published.
  caf::replies_to<finish_write>::with<void>,
  /// Errors: `not_reserved`.
  caf::replies_to<abort_write>::with<void>,
  /// Errors: `not_found`, and while too much is held: `busy`, `not_reserved` as above.
  caf::replies_to<acquire_read>::with<read_lease>,
  /// Errors: `not_reserved`.
  caf::replies_to<release_read>::with<void>, caf::replies_to<end_owner>::with<void>,
  caf::replies_to<check_exist>::with<exist_result>,
  caf::replies_to<list_objects>::with<object_list>,
  /// Errors: `not_found`.
  caf::replies_to<remove_object>::with<void>, caf::replies_to<clear_objects>::with<void>,
  caf::replies_to<check_health>::with<void>, caf::replies_to<check_pressure>::with<pressure>,
  caf::replies_to<get_storage_status>::with<storage_status>, caf::reacts_to<pool_grown>,
  caf::reacts_to<continue_work>, caf::reacts_to<revisit_holds>,
  /// The chunks of prompts (messages/chunk_messages.hpp); none of these waits for room.
  caf::replies_to<reserve_chunks>::with<chunk_reservations>,
  caf::replies_to<expire_writes>::with<void>,
  caf::replies_to<finish_chunks>::with<chunks_finished>,
  caf::replies_to<seal_chunks>::with<void>,
  /// Errors: `invalid_argument` if the keys are not whole chunks.
  caf::replies_to<hold_prefix>::with<prefix_held>,
  /// Errors: `not_found` if one is missing, `busy` if too much is held already; none of them if a
  /// prefix is asked for.
  caf::replies_to<acquire_chunks>::with<chunks_acquired>,
  caf::replies_to<end_leases>::with<void>,
  /// Errors: `busy` if there are too many tenants to set one more apart.
  caf::replies_to<set_quota>::with<void>, caf::replies_to<get_quotas>::with<quota_list>>;

/// Is told, after each message that changed it, what became readable and what is so no more
/// (a directory, subscribers). What a clear hid is told in slices, as it is freed.
using object_observer_actor = caf::typed_actor<caf::reacts_to<objects_changed>>;

struct storage_manager_options {
  /// Larger objects are refused.
  uint64_t max_object_bytes = 0;
  /// Reserved but not yet published bytes. Twice the largest object at least, or one frozen
  /// writer could stop all others.
  uint64_t max_claimed_bytes = 0;
  /// Bytes of objects that readers hold, so that stalled readers cannot stop eviction.
  uint64_t max_held_bytes = 0;
  size_t max_waiting = 4096;
  /// Reserved but not yet published bytes of chunks, those of expired reservations included.
  uint64_t max_staged_bytes = 0;
  /// What readers hold all together may not grow beyond this by holds on chunks.
  uint64_t max_prefix_held_bytes = 0;
  /// How often to look whether engines let go what they read without asking, while somebody waits
  /// for memory or some is in limbo. 0: never; for a tier that is shared with none.
  std::chrono::milliseconds revisit_interval{0};
};

/// The budgets of a pool: room for two of the largest objects at a time, so that a frozen writer or
/// reader leaves room for others; three quarters for chunks that are staged, and for those held.
storage_manager_options make_storage_options(uint64_t pool_bytes, uint64_t max_object_bytes);

/// Implements `storage_manager_actor`. Ends on `exit_msg` only; if it dies otherwise the
/// process must end: sockets still write into slots that a fresh manager would hand out again.
class storage_manager final : public storage_manager_actor::base {
public:
  storage_manager(caf::actor_config& config, std::unique_ptr<memory_tier> tier,
                  storage_manager_options options, object_observer_actor observer = {});

  behavior_type make_behavior() override;

  const char* name() const override { return "storage_manager"; }

  /// Answers who still waits; their promises also keep this actor's memory alive.
  void on_exit() override;

private:
  struct waiting_write {
    reserve_write request;
    caf::typed_response_promise<write_lease> promise;
  };
  struct waiting_read {
    acquire_read request;
    caf::typed_response_promise<read_lease> promise;
  };

  caf::result<write_lease> on_reserve_write(reserve_write& request);
  caf::result<void> on_finish_write(const finish_write& request);
  caf::result<void> on_abort_write(const abort_write& request);
  caf::result<read_lease> on_acquire_read(acquire_read& request);
  caf::result<void> on_release_read(const release_read& request);
  caf::result<void> on_end_owner(const end_owner& request);
  caf::result<exist_result> on_check_exist(const check_exist& request);
  caf::result<void> on_remove_object(const remove_object& request);
  caf::result<object_list> on_list_objects(const list_objects& request);
  caf::result<void> on_clear_objects(const clear_objects& request);
  caf::result<void> on_check_health(const check_health& request);
  caf::result<pressure> on_check_pressure(const check_pressure& request);
  caf::result<storage_status> on_get_storage_status(const get_storage_status& request);
  void on_pool_grown(const pool_grown& request);
  void on_continue_work(const continue_work& request);

  // storage_chunks.cpp
  caf::result<chunk_reservations> on_reserve_chunks(const reserve_chunks& request);
  caf::result<void> on_expire_writes(const expire_writes& request);
  caf::result<chunks_finished> on_finish_chunks(const finish_chunks& request);
  caf::result<void> on_seal_chunks(const seal_chunks& request);
  caf::result<prefix_held> on_hold_prefix(const hold_prefix& request);
  caf::result<chunks_acquired> on_acquire_chunks(const acquire_chunks& request);
  chunks_acquired acquire_prefix(const acquire_chunks& request);
  caf::result<void> on_end_leases(const end_leases& request);
  void on_revisit_holds(const revisit_holds& request);
  void revisit_later();
  caf::result<void> on_set_quota(const set_quota& request);
  caf::result<quota_list> on_get_quotas(const get_quotas& request);

  /// Makes a handler of a member function; it tells the observer afterwards.
  template <class Result, class Request>
  auto handler(Result (storage_manager::*on)(Request));

  /// `errc::busy` means: not now, wait.
  caf::expected<write_lease> try_reserve(const reserve_write& request);
  caf::expected<read_lease> try_acquire(const acquire_read& request);
  void end_lease(const lease_table::lease& ended);

  /// One chunk; `evict_budget` is what the whole message may still evict.
  caf::expected<write_lease> stage(const reserve_chunks& request, const chunk_claim& claim,
                                   size_t& evict_budget);
  void unstage(const lease_table::lease& staged);
  read_lease publish_chunk(const finish_write& write, owner_id reader);
  read_lease add_read(owner_id owner, const held_object& held,
                      lease_table::kind why = lease_table::kind::read);

  /// Whether `extra_bytes` more may be held by holds on chunks.
  bool may_hold(uint64_t extra_bytes) const;

  /// Answers the first in line. @returns false if there is none, or it must go on waiting.
  template <class Queue, class Attempt>
  bool serve_first(Queue& queue, Attempt attempt);
  void serve_waiting();
  void tell_observer();
  void continue_later();

  storage_manager_options options_;
  object_observer_actor observer_;     ///< Or null.
  std::vector<object_change> changes_; ///< By the message that is being handled.
  std::unique_ptr<memory_tier> tier_;  ///< Reports to `changes_`.
  lease_table leases_;
  std::deque<waiting_write> waiting_writes_;
  std::deque<waiting_read> waiting_reads_;
  uint64_t claimed_bytes_ = 0;
  std::unordered_set<std::string> staged_; ///< Keys of chunk reservations that did not expire.
  uint64_t staged_bytes_ = 0;
  bool growing_ = true;
  bool continuing_ = false; ///< A `continue_work` is on its way.
  bool revisiting_ = false; ///< A `revisit_holds` is on its way.
  storage_status counters_; ///< Only its counters are used.
};

} // namespace kvasir
