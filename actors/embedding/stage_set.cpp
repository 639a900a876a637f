#include "actors/embedding/stage_set.hpp"

#include "backends/checksum.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

// -- the set ----------------------------------------------------------------------------

stage_set::stage_set(std::shared_ptr<engine_core> core, std::vector<object_key> keys,
                     chunk_reservations reserved)
  : core_(std::move(core)),
    keys_(std::move(keys)),
    reserved_(std::move(reserved.chunks)),
    put_(core_->options().layout.layers) {}

stage_set::~stage_set() {
  std::vector<lease_id> unpublished;
  for (auto& lease : take_leases())
    unpublished.push_back(lease.id);
  if (!unpublished.empty())
    core_->end_leases(std::move(unpublished));
}

std::optional<slot> stage_set::where(size_t i) const {
  auto& chunk = reserved_[i];
  return chunk.state == chunk_state::reserved ? std::optional{chunk.lease.where} : std::nullopt;
}

caf::error stage_set::begin_put(size_t layer) {
  std::lock_guard guard{mutex_};
  if (committing_)
    return caf::make_error(errc::not_reserved, "the store is being committed");
  if (layer >= put_.size())
    return caf::make_error(errc::invalid_argument, "layer " + std::to_string(layer) + " of "
                                                     + std::to_string(put_.size()));
  if (put_[layer])
    return caf::make_error(errc::invalid_argument,
                           "layer " + std::to_string(layer) + " was put before");
  put_[layer] = true;
  ++under_way_;
  return caf::none;
}

void stage_set::end_put(caf::error why) {
  caf::strong_actor_ptr waiting;
  {
    std::lock_guard guard{mutex_};
    if (why && !failure_)
      failure_ = std::move(why);
    if (--under_way_ == 0)
      waiting = std::move(waiting_);
  }
  if (waiting)
    static_cast<commit_call*>(waiting->get())->wake();
}

bool stage_set::begin_commit(commit_call& waiting) {
  std::lock_guard guard{mutex_};
  committing_ = true;
  if (under_way_ == 0)
    return true;
  waiting_ = waiting.self();
  return false;
}

caf::error stage_set::incomplete() const {
  std::lock_guard guard{mutex_};
  if (failure_)
    return failure_;
  auto missing = std::count(put_.begin(), put_.end(), false);
  if (missing == 0)
    return caf::none;
  auto first = std::find(put_.begin(), put_.end(), false) - put_.begin();
  return caf::make_error(errc::invalid_argument,
                         std::to_string(missing) + " of " + std::to_string(put_.size())
                           + " layers are missing, the first is " + std::to_string(first));
}

std::vector<write_lease> stage_set::take_leases() {
  std::vector<write_lease> result;
  std::lock_guard guard{mutex_};
  if (std::exchange(taken_, true))
    return result;
  for (auto& chunk : reserved_)
    if (chunk.state == chunk_state::reserved)
      result.push_back(chunk.lease);
  return result;
}

// -- the calls --------------------------------------------------------------------------

stage_call::stage_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
                       clock::time_point deadline, std::stop_token stop,
                       std::shared_ptr<call_sink<std::shared_ptr<stage_set>>> sink,
                       reserve_chunks claim)
  : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
    claim_(std::move(claim)) {
  for (auto& chunk : claim_.chunks)
    keys_.push_back(chunk.key);
}

void stage_call::on_reserved(chunk_reservations& answer) {
  succeed(std::make_shared<stage_set>(shared_core(), std::move(keys_), std::move(answer)));
}

void commit_call::begin() {
  expect_wake();
  if (staged_->begin_commit(*this))
    woken();
  else
    wait_for_wake();
}

void commit_call::woken() {
  if (auto why = staged_->incomplete()) {
    fail(std::move(why));
    return;
  }
  written_ = staged_->take_leases();
  for (auto& lease : written_)
    leases_.push_back(lease.id);
  copy_here_or_elsewhere(written_.size() * core().chunk_bytes());
}

/// The layers came in any order: only now can the chunks be hashed.
void commit_call::copy() {
  finish_chunks finished;
  for (auto& lease : written_) {
    if (stopped()) {
      fail(stop_error());
      return;
    }
    finished.writes.push_back(
      {lease.id, checksum({core().pool() + lease.where.offset_bytes, lease.where.size_bytes})});
  }
  finished.asked = staged_->keys();
  leases_.clear(); // Consumed by the message.
  ask<&commit_call::on_finished>(std::move(finished));
}

void commit_call::on_finished(chunks_finished& answer) {
  store_result result;
  result.stored = written_.size();
  result.resident
    = static_cast<size_t>(std::count(answer.resident.begin(), answer.resident.end(), 1));
  succeed(result);
}

} // namespace kvasir
