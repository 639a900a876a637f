#include "actors/pool_keeper.hpp"

#include "actors/handover.hpp"
#include "actors/log.hpp"

#include <caf/actor_cast.hpp>
#include <caf/send.hpp>

#include <chrono>
#include <exception>
#include <utility>

namespace kvasir {

namespace {

/// A full /dev/shm or memory cgroup may have room again.
constexpr unsigned looks_per_growth_retry = 5;

} // namespace

pool_keeper::pool_keeper(shm_pool& pool, storage_manager_actor manager)
  : pool_(pool),
    manager_(std::move(manager)) {
  growing_ = pool_.usable_bytes() < pool_.capacity_bytes();
  announce();
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

void pool_keeper::announce() {
  auto complete = !growing_;
  auto usable = pool_.usable_bytes();
  handover_release(caf::actor_cast<caf::abstract_actor*>(manager_));
  caf::anon_send(manager_, pool_grown{usable, complete});
}

/// A step that fails ends the growing for now: requests should evict rather than wait for it.
void pool_keeper::grow_one_step() {
  auto usable = pool_.grow();
  if (!usable && !std::exchange(growth_failed_, true))
    log::write(log::level::error, "the pool stays smaller than configured for now",
               {{"cause", to_string(usable.error())},
                {"usable_bytes", std::to_string(pool_.usable_bytes())},
                {"capacity_bytes", std::to_string(pool_.capacity_bytes())}});
  if (usable)
    growth_failed_ = false;
  growing_ = usable && *usable < pool_.capacity_bytes();
  announce();
}

void pool_keeper::run() {
  std::unique_lock guard{mutex_};
  for (unsigned look = 1; !stopping_; ++look) {
    while (growing_ && !stopping_) {
      guard.unlock();
      grow_one_step();
      guard.lock();
    }
    if (stop_signal_.wait_for(guard, std::chrono::seconds{1}, [this] { return stopping_; }))
      return;
    watch_name();
    if (look % looks_per_growth_retry == 0 && pool_.usable_bytes() < pool_.capacity_bytes())
      grow_one_step();
  }
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
