// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvasir {

/// Threads for what would keep an I/O thread too long: copies of whole chunks, their checksums,
/// looks into /proc. Work says itself that it is done, usually by `io_unit::post`.
///
/// Threading: every function from any thread but the pool's own workers; construct and destroy
/// from one thread.
/// Blocking: `submit` never waits; `stop` waits for the work under way.
class worker_pool {
public:
  /// Somebody waits for a copy; a hash may come later.
  enum class priority : uint8_t { copy, hash };

  /// What is to be done. Must not throw: that ends the process (`std::terminate`), for nobody
  /// knows which slots it still writes into.
  using work = std::function<void()>;

  struct options {
    unsigned thread_count = 2;
    size_t max_queued = 1024; ///< Of both priorities together; those that run do not count.
  };

  explicit worker_pool(options opts);
  worker_pool() : worker_pool(options{}) {}
  ~worker_pool() { stop(); }
  worker_pool(const worker_pool&) = delete;
  worker_pool& operator=(const worker_pool&) = delete;

  /// Runs `what` on one of the threads, soon: all copies before all hashes, each in order.
  /// @returns false, and destroys `what` unrun, if the queue is full or `stop` was called.
  bool submit(priority order, work what);

  /// Waits for the work under way, destroys what is queued unrun, ends the threads. Work that must
  /// not be lost belongs to somebody who looks for it afterwards. Idempotent.
  void stop();

  /// Waiting now; for the metrics.
  size_t queued() const;

private:
  void run();
  size_t queued_locked() const { return copies_.size() + hashes_.size(); }

  const size_t max_queued_;
  mutable std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<work> copies_;
  std::deque<work> hashes_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

} // namespace kvasir
