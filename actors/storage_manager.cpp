#include "actors/storage_manager.hpp"

#include "actors/handover.hpp"
#include "backends/slot_allocator.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvasir {

namespace {

/// Waiting requests that one event may serve, so that no message costs more than its share.
constexpr size_t max_served_at_once = 64;

} // namespace

storage_manager_options make_storage_options(uint64_t pool_bytes, uint64_t max_object_bytes) {
  storage_manager_options result;
  result.max_object_bytes = max_object_bytes;
  auto two_largest = 2 * slot_allocator::rounded_bytes(max_object_bytes);
  result.max_claimed_bytes = std::max(pool_bytes / 4, two_largest);
  result.max_held_bytes = std::max(pool_bytes / 2, two_largest);
  result.max_staged_bytes = pool_bytes / 4 * 3;
  result.max_prefix_held_bytes = pool_bytes / 4 * 3;
  return result;
}

storage_manager::storage_manager(caf::actor_config& config, std::unique_ptr<memory_tier> tier,
                                 storage_manager_options options,
                                 object_observer_actor observer)
  : storage_manager_actor::base(config),
    options_(options),
    observer_(std::move(observer)),
    tier_(std::move(tier)) {
  if (observer_)
    tier_->report_changes(&changes_);
}

template <class Result, class Request>
auto storage_manager::handler(Result (storage_manager::*on)(Request)) {
  return [this, on](Request request) -> Result {
    handover_scope scope{this};
    struct teller {
      storage_manager* self;
      ~teller() {
        self->tell_observer();
        if (self->options_.revisit_interval.count() > 0)
          self->revisit_later();
      }
    } afterwards{this};
    return (this->*on)(request);
  };
}

/// CAF tries the handlers in this order, at 20 ns each: those of every request come first.
storage_manager::behavior_type storage_manager::make_behavior() {
  return {
    handler(&storage_manager::on_acquire_read),
    handler(&storage_manager::on_release_read),
    handler(&storage_manager::on_acquire_chunks),
    handler(&storage_manager::on_end_leases),
    handler(&storage_manager::on_reserve_write),
    handler(&storage_manager::on_finish_write),
    handler(&storage_manager::on_check_exist),
    handler(&storage_manager::on_hold_prefix),
    handler(&storage_manager::on_reserve_chunks),
    handler(&storage_manager::on_finish_chunks),
    handler(&storage_manager::on_seal_chunks),
    handler(&storage_manager::on_abort_write),
    handler(&storage_manager::on_end_owner),
    handler(&storage_manager::on_expire_writes),
    handler(&storage_manager::on_check_pressure),
    handler(&storage_manager::on_list_objects),
    handler(&storage_manager::on_remove_object),
    handler(&storage_manager::on_clear_objects),
    handler(&storage_manager::on_check_health),
    handler(&storage_manager::on_get_storage_status),
    handler(&storage_manager::on_pool_grown),
    handler(&storage_manager::on_continue_work),
    handler(&storage_manager::on_revisit_holds),
    handler(&storage_manager::on_set_quota),
    handler(&storage_manager::on_get_quotas),
  };
}

// -- writing ----------------------------------------------------------------------------

caf::expected<write_lease> storage_manager::try_reserve(const reserve_write& request) {
  auto memory_bytes = tier_->memory_bytes(request.size_bytes);
  if (claimed_bytes_ + memory_bytes > options_.max_claimed_bytes)
    return caf::make_error(errc::busy);
  // While the pool grows there will be room soon that costs no object its place.
  auto limit = growing_ ? size_t{0} : memory_tier::slice_objects;
  auto reserved = tier_->reserve({request.key, request.layout, request.size_bytes}, limit);
  if (!reserved) {
    if (growing_)
      return caf::make_error(errc::busy);
    if (reserved.error() == errc::busy)
      continue_later();
    // What is reserved or held now will be given back, or can be evicted once released.
    auto others = leases_.writes() + leases_.reads() > 0;
    if (reserved.error() == errc::out_of_memory && others)
      return caf::make_error(errc::busy);
    if (reserved.error() == errc::too_large)
      ++counters_.rejected_too_large;
    else if (reserved.error() == errc::out_of_memory)
      ++counters_.rejected_out_of_memory;
    return std::move(reserved.error());
  }
  claimed_bytes_ += memory_bytes;
  auto id
    = leases_.add({request.owner, reserved->handle, memory_bytes, lease_table::kind::write});
  return write_lease{id, reserved->where};
}

caf::result<write_lease> storage_manager::on_reserve_write(reserve_write& request) {
  if (request.size_bytes > options_.max_object_bytes) {
    ++counters_.rejected_too_large;
    return caf::make_error(errc::too_large);
  }
  if (waiting_writes_.empty()) { // Nobody overtakes who waits already.
    auto lease = try_reserve(request);
    if (lease)
      return *lease;
    if (lease.error() != errc::busy)
      return std::move(lease.error());
  }
  if (waiting_writes_.size() >= options_.max_waiting) {
    ++counters_.rejected_busy;
    return caf::make_error(errc::busy);
  }
  auto promise = make_response_promise<write_lease>();
  waiting_writes_.push_back({std::move(request), promise});
  return promise;
}

caf::result<void> storage_manager::on_finish_write(const finish_write& request) {
  auto lease = leases_.take(request.id, lease_table::kind::write);
  if (!lease) {
    ++counters_.unknown_leases;
    return caf::make_error(errc::not_reserved);
  }
  claimed_bytes_ -= lease->size_bytes;
  if (auto error
      = tier_->publish(lease->object, request.checksum, memory_tier::conflict::replace))
    return error;
  serve_waiting();
  return caf::unit;
}

caf::result<void> storage_manager::on_abort_write(const abort_write& request) {
  auto lease = leases_.take(request.id, lease_table::kind::write);
  if (!lease) {
    ++counters_.unknown_leases;
    return caf::make_error(errc::not_reserved);
  }
  end_lease(*lease);
  serve_waiting();
  return caf::unit;
}

// -- reading ----------------------------------------------------------------------------

caf::expected<read_lease> storage_manager::try_acquire(const acquire_read& request) {
  auto extra_bytes = tier_->unheld_bytes(request.key);
  if (extra_bytes > 0 && tier_->usage().held_bytes + extra_bytes > options_.max_held_bytes)
    return caf::make_error(errc::busy);
  auto held = tier_->hold(request.key);
  if (!held) {
    ++counters_.misses;
    return std::move(held.error());
  }
  ++counters_.hits;
  return add_read(request.owner, *held);
}

read_lease storage_manager::add_read(owner_id owner, const held_object& held,
                                     lease_table::kind why) {
  auto id = leases_.add({owner, held.handle, held.where.size_bytes, why});
  return {id, held.where, held.layout, held.checksum, held.sealed};
}

caf::result<read_lease> storage_manager::on_acquire_read(acquire_read& request) {
  // A miss and a second hold of one object cost no budget and pass; nobody else overtakes.
  if (waiting_reads_.empty() || tier_->unheld_bytes(request.key) == 0) {
    auto lease = try_acquire(request);
    if (lease)
      return *lease;
    if (lease.error() != errc::busy)
      return std::move(lease.error());
  }
  if (waiting_reads_.size() >= options_.max_waiting) {
    ++counters_.rejected_busy;
    return caf::make_error(errc::busy);
  }
  auto promise = make_response_promise<read_lease>();
  waiting_reads_.push_back({std::move(request), promise});
  return promise;
}

caf::result<void> storage_manager::on_release_read(const release_read& request) {
  auto lease = leases_.take(request.id, lease_table::kind::read);
  if (!lease) {
    ++counters_.unknown_leases;
    return caf::make_error(errc::not_reserved);
  }
  if (request.corrupt) {
    ++counters_.corrupt_objects;
    tier_->drop(lease->object);
  }
  end_lease(*lease);
  serve_waiting();
  return caf::unit;
}

caf::result<exist_result> storage_manager::on_check_exist(const check_exist& request) {
  exist_result result;
  result.found.reserve(request.keys.size());
  for (auto& key : request.keys)
    result.found.push_back(tier_->contains(key) ? 1 : 0);
  return result;
}

// -- ends -------------------------------------------------------------------------------

void storage_manager::end_lease(const lease_table::lease& ended) {
  switch (ended.what) {
    case lease_table::kind::read:
    case lease_table::kind::hashing:
      tier_->release(ended.object);
      return;
    case lease_table::kind::write:
      claimed_bytes_ -= ended.size_bytes;
      break;
    case lease_table::kind::chunk:
    case lease_table::kind::expired:
      unstage(ended);
      staged_bytes_ -= ended.size_bytes;
      break;
  }
  ++counters_.aborted_writes;
  tier_->abort(ended.object);
}

caf::result<void> storage_manager::on_end_owner(const end_owner& request) {
  while (auto lease = leases_.take_any(request.owner))
    end_lease(*lease);
  auto drop = [&](auto& queue) {
    std::erase_if(queue, [&](auto& waiting) {
      if (waiting.request.owner != request.owner)
        return false;
      waiting.promise.deliver(caf::make_error(errc::not_reserved));
      return true;
    });
  };
  drop(waiting_writes_);
  drop(waiting_reads_);
  serve_waiting();
  return caf::unit;
}

template <class Queue, class Attempt>
bool storage_manager::serve_first(Queue& queue, Attempt attempt) {
  if (queue.empty())
    return false;
  auto& first = queue.front();
  auto lease = attempt(first.request);
  if (!lease && lease.error() == errc::busy)
    return false;
  if (lease)
    first.promise.deliver(*lease);
  else
    first.promise.deliver(std::move(lease.error()));
  queue.pop_front();
  return true;
}

void storage_manager::serve_waiting() {
  if (waiting_reads_.empty() && waiting_writes_.empty())
    return;
  const auto evicted_before = tier_->usage().evicted_objects;
  for (size_t served = 0;; ++served) {
    auto evicted = tier_->usage().evicted_objects - evicted_before;
    if (served == max_served_at_once || evicted >= memory_tier::slice_objects) {
      continue_later(); // Perhaps no other event comes that would serve the rest.
      return;
    }
    if (!serve_first(waiting_reads_, [this](auto& request) { return try_acquire(request); })
        && !serve_first(waiting_writes_,
                        [this](auto& request) { return try_reserve(request); }))
      return;
  }
}

void storage_manager::tell_observer() {
  if (!changes_.empty())
    send(observer_, objects_changed{std::exchange(changes_, {})});
}

void storage_manager::on_exit() {
  handover_scope scope{this};
  observer_ = nullptr;
  auto fail = [](auto& queue) {
    for (auto& waiting : queue)
      waiting.promise.deliver(caf::make_error(errc::peer_unreachable));
    queue.clear();
  };
  fail(waiting_writes_);
  fail(waiting_reads_);
}

// -- the whole --------------------------------------------------------------------------

caf::result<void> storage_manager::on_remove_object(const remove_object& request) {
  if (!tier_->remove(request.key))
    return caf::make_error(errc::not_found);
  serve_waiting();
  return caf::unit;
}

caf::result<object_list> storage_manager::on_list_objects(const list_objects& request) {
  return tier_->list(request.cursor);
}

caf::result<void> storage_manager::on_clear_objects(const clear_objects& request) {
  tier_->clear(request.force ? std::vector<object_handle>{} : leases_.read_objects());
  continue_later();
  return caf::unit;
}

void storage_manager::on_pool_grown(const pool_grown& request) {
  tier_->grow(request.usable_bytes);
  growing_ = !request.complete;
  serve_waiting();
}

void storage_manager::continue_later() {
  if (!std::exchange(continuing_, true))
    send(this, continue_work{});
}

void storage_manager::on_continue_work(const continue_work&) {
  continuing_ = false;
  if (tier_->sweep())
    continue_later();
  serve_waiting();
}

caf::result<void> storage_manager::on_check_health(const check_health&) {
  return caf::unit;
}

caf::result<pressure> storage_manager::on_check_pressure(const check_pressure&) {
  return pressure{!waiting_writes_.empty() || !waiting_reads_.empty()};
}

caf::result<storage_status> storage_manager::on_get_storage_status(const get_storage_status&) {
  auto usage = tier_->usage();
  auto result = counters_;
  result.capacity_bytes = usage.capacity_bytes;
  result.usable_bytes = usage.usable_bytes;
  result.used_bytes = usage.used_bytes;
  result.claimed_bytes = claimed_bytes_;
  result.held_bytes = usage.held_bytes;
  result.objects = usage.objects;
  result.write_leases = leases_.writes();
  result.read_leases = leases_.reads();
  result.waiting = waiting_writes_.size() + waiting_reads_.size();
  result.published = usage.published;
  result.replaced = usage.replaced;
  result.evicted_objects = usage.evicted_objects;
  result.evicted_bytes = usage.evicted_bytes;
  result.removed = usage.removed;
  result.staged_bytes = staged_bytes_;
  result.expired_leases = leases_.expired();
  result.indexed_objects = usage.indexed_objects;
  result.overflowed_sets = usage.overflowed_sets;
  result.limbo_bytes = usage.limbo_bytes;
  result.index_refused = usage.index_refused;
  result.skipped_evictions = usage.skipped_evictions;
  result.engine_touches = usage.touches;
  result.touches_overrun = usage.touches_overrun;
  return result;
}

} // namespace kvasir
