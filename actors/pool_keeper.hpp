// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/storage_manager.hpp"
#include "backends/shm_pool.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace kvasir {

/// The pool's background work on a thread of its own, because it blocks: first it faults the
/// pool in, step by step, and tells the storage manager; then it looks once a second whether
/// another process unlinked the segment's name, and publishes it again.
///
/// Threading: construct and destroy from one thread, the rest from any.
class pool_keeper {
public:
  /// Tells the manager what is usable already, and grows on.
  /// @pre `pool` and `manager` outlive it.
  pool_keeper(shm_pool& pool, storage_manager_actor manager);
  ~pool_keeper();

  /// Times the segment's name was found gone.
  uint64_t segment_lost() const noexcept { return segment_lost_.load(); }

  bool growing() const noexcept { return growing_.load(); }

  /// False once the thread ended without being told to.
  bool alive() const noexcept { return alive_.load(); }

private:
  void announce();
  void grow_one_step();
  void run();
  void watch_name();

  shm_pool& pool_;
  storage_manager_actor manager_;
  std::atomic<uint64_t> segment_lost_{0};
  std::atomic<bool> growing_{true};
  std::atomic<bool> alive_{true};
  bool name_is_lost_ = false; ///< Known so; the thread's own.
  std::mutex mutex_;
  std::condition_variable stop_signal_;
  bool growth_failed_ = false; ///< Told in the log; its thread only.
  bool stopping_ = false;
  std::thread thread_;
};

} // namespace kvasir
