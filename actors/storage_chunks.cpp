#include "actors/storage_manager.hpp"

#include <algorithm>
#include <utility>
#include <vector>

/// What a storage manager does with the chunks of prompts.
namespace kvasir {

// -- writing ----------------------------------------------------------------------------

caf::expected<write_lease> storage_manager::stage(const reserve_chunks& request,
                                                  const chunk_claim& claim,
                                                  size_t& evict_budget) {
  auto memory_bytes = tier_->memory_bytes(request.size_bytes);
  if (staged_bytes_ + memory_bytes > options_.max_staged_bytes)
    return caf::make_error(errc::busy);
  auto reserved = tier_->reserve(
    {claim.key, request.layout, request.size_bytes, request.tenant, claim.parent.bytes},
    evict_budget);
  if (!reserved)
    return std::move(reserved.error());
  staged_bytes_ += memory_bytes;
  auto& key = *staged_.insert(claim.key.bytes).first;
  auto id = leases_.add(
    {request.owner, reserved->handle, memory_bytes, lease_table::kind::chunk, &key});
  return write_lease{id, reserved->where};
}

/// The key can be reserved anew.
void storage_manager::unstage(const lease_table::lease& staged) {
  if (staged.staged_key != nullptr)
    staged_.erase(staged_.find(*staged.staged_key));
}

caf::result<chunk_reservations>
storage_manager::on_reserve_chunks(const reserve_chunks& request) {
  chunk_reservations result;
  result.chunks.resize(request.chunks.size());
  // While the pool grows there will be room soon that costs no object its place.
  auto evict_budget = growing_ ? size_t{0} : memory_tier::slice_objects;
  // Resident chunks must not give way to those behind them, or the prefix would not grow.
  std::vector<object_handle> passed;
  auto room = request.size_bytes <= options_.max_object_bytes;
  for (size_t i = 0; i < request.chunks.size(); ++i) {
    auto& claim = request.chunks[i];
    auto& answer = result.chunks[i];
    if (auto held = tier_->hold(claim.key)) {
      passed.push_back(held->handle);
      answer.state = chunk_state::resident;
      continue;
    }
    if (staged_.contains(claim.key.bytes)) {
      answer.state = chunk_state::staged;
      continue;
    }
    if (room) {
      if (auto lease = stage(request, claim, evict_budget)) {
        answer = {chunk_state::reserved, *lease};
        continue;
      }
      room = false; // The others are as large, and come later in the prompt.
    }
    ++counters_.chunks_no_room;
  }
  for (auto handle : passed)
    tier_->release(handle);
  return result;
}

caf::result<void> storage_manager::on_expire_writes(const expire_writes& request) {
  for (auto id : request.leases) {
    if (auto before = leases_.expire(id))
      unstage(*before);
    else
      ++counters_.unknown_leases;
  }
  return caf::unit;
}

read_lease storage_manager::publish_chunk(const finish_write& write, owner_id reader) {
  if (auto late = leases_.take(write.id, lease_table::kind::expired)) {
    // Whoever wrote this has ended writing: its memory is free to go.
    ++counters_.chunks_late;
    end_lease(*late);
    return {};
  }
  auto lease = leases_.take(write.id, lease_table::kind::chunk);
  if (!lease) {
    ++counters_.unknown_leases;
    return {};
  }
  unstage(*lease);
  staged_bytes_ -= lease->size_bytes;
  auto checksum = reader == 0 ? std::optional{write.checksum} : std::nullopt;
  if (auto error = tier_->publish(lease->object, checksum, memory_tier::conflict::keep)) {
    counters_.chunks_redundant += error == errc::already_exists;
    return {};
  }
  ++counters_.chunks_stored;
  if (reader == 0)
    return {};
  auto held = tier_->hold(lease->object);
  return held ? add_read(reader, *held, lease_table::kind::hashing) : read_lease{};
}

caf::result<chunks_finished> storage_manager::on_finish_chunks(const finish_chunks& request) {
  chunks_finished result;
  result.holds.reserve(request.writes.size());
  for (auto& write : request.writes)
    result.holds.push_back(publish_chunk(write, request.reader));
  result.resident.reserve(request.asked.size());
  for (auto& key : request.asked)
    result.resident.push_back(tier_->present(key) ? 1 : 0);
  serve_waiting();
  return result;
}

caf::result<void> storage_manager::on_seal_chunks(const seal_chunks& request) {
  for (auto& hashed : request.holds) {
    auto lease = leases_.take(hashed.id, lease_table::kind::hashing);
    if (!lease)
      continue;
    tier_->seal(lease->object, hashed.checksum);
    end_lease(*lease);
  }
  serve_waiting();
  return caf::unit;
}

// -- reading ----------------------------------------------------------------------------

bool storage_manager::may_hold(uint64_t extra_bytes) const {
  return extra_bytes == 0
         || tier_->usage().held_bytes + extra_bytes <= options_.max_prefix_held_bytes;
}

caf::result<prefix_held> storage_manager::on_hold_prefix(const hold_prefix& request) {
  const size_t width = request.width;
  if (width == 0 || request.keys.size() % width != 0)
    return caf::make_error(errc::invalid_argument);
  prefix_held result;
  ++counters_.prefix_lookups;
  counters_.prefix_chunks_asked += request.keys.size() / width;
  for (auto chunk = request.keys.begin(); chunk != request.keys.end(); chunk += width) {
    auto end = chunk + width;
    if (!std::all_of(chunk, end, [this](auto& key) { return tier_->present(key); }))
      break;
    uint64_t extra_bytes = 0;
    for (auto key = chunk; key != end; ++key)
      extra_bytes += tier_->unheld_bytes(*key);
    if (!may_hold(extra_bytes)) {
      ++counters_.prefixes_cut;
      break;
    }
    for (auto key = chunk; key != end; ++key)
      if (auto held = tier_->hold(*key))
        result.leases.push_back(add_read(request.owner, *held).id);
    ++result.chunks;
  }
  counters_.prefix_chunks_held += result.chunks;
  return result;
}

chunks_acquired storage_manager::acquire_prefix(const acquire_chunks& request) {
  chunks_acquired result;
  ++counters_.prefix_lookups;
  counters_.prefix_chunks_asked += request.keys.size();
  for (auto& key : request.keys) {
    if (!may_hold(tier_->unheld_bytes(key))) {
      ++counters_.prefixes_cut;
      break;
    }
    auto held = tier_->hold(key);
    if (!held)
      break;
    result.leases.push_back(add_read(request.owner, *held));
  }
  counters_.prefix_chunks_held += result.leases.size();
  return result;
}

caf::result<chunks_acquired> storage_manager::on_acquire_chunks(const acquire_chunks& request) {
  if (request.prefix)
    return acquire_prefix(request);
  auto missing = std::count_if(request.keys.begin(), request.keys.end(),
                               [this](auto& key) { return !tier_->present(key); });
  if (missing > 0) {
    counters_.misses += static_cast<uint64_t>(missing);
    return caf::make_error(errc::not_found);
  }
  std::vector<held_object> held;
  held.reserve(request.keys.size());
  for (auto& key : request.keys) {
    auto object
      = may_hold(tier_->unheld_bytes(key)) ? tier_->hold(key) : caf::make_error(errc::busy);
    if (!object) {
      for (auto& other : held)
        tier_->release(other.handle);
      counters_.rejected_busy += object.error() == errc::busy;
      return std::move(object.error());
    }
    held.push_back(*object);
  }
  counters_.hits += held.size();
  chunks_acquired result;
  result.leases.reserve(held.size());
  for (auto& object : held)
    result.leases.push_back(add_read(request.owner, object));
  return result;
}

// -- ends -------------------------------------------------------------------------------

caf::result<void> storage_manager::on_end_leases(const end_leases& request) {
  for (auto id : request.leases) {
    if (auto lease = leases_.take(id))
      end_lease(*lease);
    else
      ++counters_.unknown_leases;
  }
  serve_waiting();
  return caf::unit;
}

// -- engines that read without asking ---------------------------------------------------

/// What engines let go without a message is noticed by nobody else.
void storage_manager::revisit_later() {
  auto wait = !waiting_writes_.empty() || !waiting_reads_.empty();
  if (revisiting_ || (!wait && !tier_->in_limbo()))
    return;
  revisiting_ = true;
  delayed_send(this, options_.revisit_interval, revisit_holds{});
}

void storage_manager::on_revisit_holds(const revisit_holds&) {
  revisiting_ = false;
  tier_->revisit();
  serve_waiting();
}

// -- tenants ----------------------------------------------------------------------------

caf::result<void> storage_manager::on_set_quota(const set_quota& request) {
  if (auto error = tier_->set_quota(request.tenant, request.limit_bytes))
    return error;
  serve_waiting();
  return caf::unit;
}

caf::result<quota_list> storage_manager::on_get_quotas(const get_quotas&) {
  return quota_list{tier_->quotas()};
}

} // namespace kvasir
