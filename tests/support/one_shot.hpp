// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace kvasir::test {

/// No test waits longer than this for another thread.
inline constexpr std::chrono::seconds patience{60};

/// Something that happens once: threads wait for it, others announce it, first one counts.
///
/// Threading: any thread. Who was woken may destroy it at once, also while `raise` still returns.
/// A `std::promise` or a `std::once_flag` would not allow that: both are touched after the waking.
class one_shot {
public:
  void raise() {
    std::lock_guard guard{mutex_};
    raised_ = true;
    changed_.notify_all(); // Under the lock: nobody gets away before this is done with.
  }

  bool raised() const {
    std::lock_guard guard{mutex_};
    return raised_;
  }

  /// Returns false if it took longer than `patience`.
  bool wait() const {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, patience, [this] { return raised_; });
  }

private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool raised_ = false;
};

} // namespace kvasir::test
