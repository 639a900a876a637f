#include "actors/pool_keeper.hpp"

#include "actors/handover.hpp"
#include "actors/log.hpp"

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

#include <chrono>
#include <exception>
#include <utility>

namespace kvasir {

pool_keeper::pool_keeper(shm_pool& pool, storage_manager_actor manager)
  : pool_(pool),
    manager_(std::move(manager)) {
  grow_one_step();
  thread_ = std::thread{[this] {
    try {
      run();
    } catch (const std::exception& failure) {
      log::write(log::level::error, "the pool's keeper ended", {{"cause", failure.what()}});
      alive_ = false;
    }
  }};
}

pool_keeper::~pool_keeper() {
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
  }
  stop_signal_.notify_all();
  thread_.join();
}

/// @returns true while there is more to grow.
bool pool_keeper::grow_one_step() {
  auto usable = pool_.grow();
  if (!usable)
    log::write(log::level::error, "the pool stays smaller than configured",
               {{"cause", to_string(usable.error())},
                {"usable_bytes", std::to_string(pool_.usable_bytes())},
                {"capacity_bytes", std::to_string(pool_.capacity_bytes())}});
  auto complete = !usable || *usable == pool_.capacity_bytes();
  growing_ = !complete;
  handover_release(caf::actor_cast<caf::abstract_actor*>(manager_));
  caf::anon_send(manager_, pool_grown{pool_.usable_bytes(), complete});
  return !complete;
}

void pool_keeper::run() {
  std::unique_lock guard{mutex_};
  while (growing_ && !stopping_) {
    guard.unlock();
    grow_one_step();
    guard.lock();
  }
  while (!stop_signal_.wait_for(guard, std::chrono::seconds{1}, [this] { return stopping_; }))
    watch_name();
}

void pool_keeper::watch_name() {
  if (!pool_.is_shared() || pool_.segment_present()) {
    name_is_lost_ = false;
    return;
  }
  auto back = pool_.republish();
  // One loss is told once, although each look at the name tries to mend it.
  if (std::exchange(name_is_lost_, !back))
    return;
  ++segment_lost_;
  log::write(log::level::warn, "another process unlinked the pool's segment",
             {{"segment", pool_.name()}, {"published_again", back ? "yes" : "no"}});
}

} // namespace kvasir
