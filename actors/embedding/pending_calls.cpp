#include "actors/embedding/pending_calls.hpp"

#include "actors/embedding/operation.hpp"

namespace kvasir {

namespace {

operation& call_of(const caf::strong_actor_ptr& pointer) {
  return *static_cast<operation*>(pointer->get());
}

} // namespace

pending_calls::added pending_calls::add(operation& what) {
  std::lock_guard guard{mutex_};
  if (calls_.size() >= limit_)
    return added::refused;
  what.place_ = calls_.size();
  calls_.push_back(what.self());
  return calls_.size() == 1 ? added::first : added::yes;
}

void pending_calls::remove(operation& what) {
  caf::strong_actor_ptr gone; // Released without the lock.
  std::lock_guard guard{mutex_};
  auto place = what.place_;
  if (place == operation::nowhere)
    return;
  gone = std::move(calls_[place]);
  what.place_ = operation::nowhere;
  if (place + 1 != calls_.size()) {
    calls_[place] = std::move(calls_.back());
    call_of(calls_[place]).place_ = place;
  }
  calls_.pop_back();
}

bool pending_calls::expire(clock::time_point now) {
  std::vector<caf::strong_actor_ptr> due;
  {
    std::lock_guard guard{mutex_};
    for (auto& each : calls_)
      if (call_of(each).deadline() <= now)
        due.push_back(each);
  }
  for (auto& each : due)
    call_of(each).abort(errc::timed_out);
  std::lock_guard guard{mutex_};
  return !calls_.empty();
}

void pending_calls::abort_all(errc why) {
  std::vector<caf::strong_actor_ptr> all;
  {
    std::lock_guard guard{mutex_};
    all = calls_;
  }
  for (auto& each : all)
    call_of(each).abort(why);
}

size_t pending_calls::size() const {
  std::lock_guard guard{mutex_};
  return calls_.size();
}

} // namespace kvasir
