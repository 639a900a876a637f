#include "actors/worker_pool.hpp"

#include <utility>

namespace kvasir {

worker_pool::worker_pool(options opts) : max_queued_(opts.max_queued) {
  for (unsigned i = 0; i < opts.thread_count; ++i)
    threads_.emplace_back([this]() noexcept { run(); });
}

bool worker_pool::submit(priority order, work what) {
  {
    std::lock_guard guard{mutex_};
    if (stopping_ || queued_locked() >= max_queued_)
      return false;
    (order == priority::copy ? copies_ : hashes_).push_back(std::move(what));
  }
  has_work_.notify_one();
  return true;
}

void worker_pool::stop() {
  std::deque<work> dropped_copies;
  std::deque<work> dropped_hashes;
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
    dropped_copies.swap(copies_);
    dropped_hashes.swap(hashes_);
  }
  has_work_.notify_all();
  for (auto& thread : threads_)
    thread.join();
  threads_.clear();
}

size_t worker_pool::queued() const {
  std::lock_guard guard{mutex_};
  return queued_locked();
}

void worker_pool::run() {
  std::unique_lock guard{mutex_};
  for (;;) {
    has_work_.wait(guard, [this] { return stopping_ || queued_locked() > 0; });
    if (stopping_)
      return;
    auto& queue = copies_.empty() ? hashes_ : copies_;
    auto next = std::move(queue.front());
    queue.pop_front();
    guard.unlock();
    next();
    next = nullptr; // What it holds ends here, too, not under the lock.
    guard.lock();
  }
}

} // namespace kvasir
