// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvasir {

/// A few threads for what takes long and must not keep an I/O unit: copies of whole chunks,
/// hashes, looks into /proc. How its result gets back is the work's own business (it posts to
/// its unit). Work must not throw.
///
/// Threading: construct, `stop` and destroy from one thread, `submit` from any.
class worker_pool {
public:
  enum class urgency : uint8_t {
    waited_for, ///< A client waits.
    background, ///< After all work that is waited for.
  };

  /// @param max_queued pieces of work of each urgency
  worker_pool(unsigned threads, size_t max_queued);
  ~worker_pool();

  /// @returns false, and destroys `work` unrun, if the queue is full or the pool stopped.
  bool submit(urgency how, std::function<void()> work);

  /// Runs what is queued and ends the threads. Idempotent.
  void stop();

private:
  void run();

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable wake_;
  std::deque<std::function<void()>> waited_for_;
  std::deque<std::function<void()>> background_;
  bool stopping_ = false;

  const size_t max_queued_;
  std::vector<std::thread> threads_;
};

} // namespace kvasir
