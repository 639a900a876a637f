#include "actors/embedding/engine_calls.hpp"

#include "backends/checksum.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvasir {

// -- lookup -----------------------------------------------------------------------------

void lookup_call::begin() {
  if (auto index = core().index()) {
    if (!core().node_answers()) {
      fail(caf::make_error(errc::peer_unreachable, "the node is gone"));
      return;
    }
    if (auto held = index->hold_prefix(range_.digests, core().chunk_bytes())) {
      core().counters().index_lookups.fetch_add(1, std::memory_order_relaxed);
      hold(std::move(*held));
      return;
    }
  }
  core().counters().asked_lookups.fetch_add(1, std::memory_order_relaxed);
  ask<&lookup_call::on_acquired>(acquire_chunks{core().owner(), range_.keys(), true});
}

void lookup_call::on_acquired(chunks_acquired& answer) {
  hold(std::move(answer.leases));
}

void lookup_call::hold(std::vector<read_lease> leases) {
  if (leases.empty()) {
    succeed(hold_user{});
    return;
  }
  range_.identities.resize(leases.size());
  succeed(
    hold_user{std::make_shared<hold_set>(shared_core(), std::move(range_), std::move(leases))});
}

// -- load -------------------------------------------------------------------------------

void load_call::begin() {
  if (!from_ || to_.chunks.empty())
    succeed(load_result{});
  else
    copy_here_or_elsewhere(std::min(from_->size(), to_.chunks.size()) * core().chunk_bytes());
}

/// @returns false if the bytes are not those that were stored.
bool load_call::copy_chunk(size_t i) const {
  auto from = from_->bytes(i);
  auto& lease = from_->lease(i);
  if (!core().options().verify_loads || !lease.sealed) {
    std::memcpy(to_.chunks[i].data(), from.data(), from.size());
    return true;
  }
  return copy_and_checksum(to_.chunks[i].data(), from) == lease.checksum;
}

void load_call::copy() {
  load_result result;
  const auto count = std::min(from_->size(), to_.chunks.size());
  for (; result.chunks < count; ++result.chunks) {
    if (stopped()) {
      fail(stop_error());
      return;
    }
    if (!copy_chunk(result.chunks)) {
      from_->drop_corrupt(result.chunks);
      result.corrupt = 1;
      break;
    }
  }
  result.tokens = result.chunks * core().hasher().chunk_size();
  succeed(result);
}

void load_call::drop_inputs() {
  from_.reset();
  to_ = {};
}

// -- store ------------------------------------------------------------------------------

void store_call::begin() {
  if (claim_.chunks.empty()) {
    succeed(store_result{});
    return;
  }
  keys_.reserve(claim_.chunks.size());
  for (auto& chunk : claim_.chunks)
    keys_.push_back(chunk.key);
  ask<&store_call::on_reserved>(std::move(claim_));
}

void store_call::on_reserved(chunk_reservations& answer) {
  store_result nothing_new;
  for (auto& chunk : answer.chunks) {
    if (chunk.state == chunk_state::reserved)
      leases_.push_back(chunk.lease.id);
    nothing_new.resident += chunk.state == chunk_state::resident ? 1 : 0;
  }
  if (leases_.empty()) {
    succeed(nothing_new);
    return;
  }
  reserved_ = std::move(answer);
  copy_here_or_elsewhere(leases_.size() * core().chunk_bytes());
}

void store_call::copy() {
  finish_chunks finished;
  finished.writes.reserve(leases_.size());
  for (size_t i = 0; i < reserved_.chunks.size(); ++i) {
    auto& chunk = reserved_.chunks[i];
    if (chunk.state != chunk_state::reserved)
      continue;
    if (stopped()) {
      fail(stop_error());
      return;
    }
    auto to = core().pool() + chunk.lease.where.offset_bytes;
    finished.writes.push_back({chunk.lease.id, copy_and_checksum(to, from_.chunks[i])});
  }
  written_ = finished.writes.size();
  finished.asked = std::move(keys_);
  leases_.clear(); // Consumed by the message.
  ask<&store_call::on_finished>(std::move(finished));
}

void store_call::on_finished(chunks_finished& answer) {
  store_result result;
  result.stored = written_;
  result.resident
    = static_cast<size_t>(std::count(answer.resident.begin(), answer.resident.end(), 1));
  succeed(result);
}

// -- pieces -----------------------------------------------------------------------------

void copy_call::begin() {
  uint64_t bytes = 0;
  for (auto& each : what_.pieces)
    bytes += each.size_bytes;
  copy_here_or_elsewhere(bytes);
}

void copy_call::copy() {
  for (auto& each : what_.pieces) {
    if (stopped()) {
      fail(stop_error());
      return;
    }
    std::memcpy(each.to, each.from, each.size_bytes);
  }
  succeed(caf::unit);
}

} // namespace kvasir
