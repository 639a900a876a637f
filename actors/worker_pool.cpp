#include "actors/worker_pool.hpp"

#include <utility>

namespace kvasir {

worker_pool::worker_pool(unsigned threads, size_t max_queued)
  : max_queued_(max_queued) {
  for (unsigned i = 0; i < threads; ++i)
    threads_.emplace_back([this] { run(); });
}

worker_pool::~worker_pool() {
  stop();
}

bool worker_pool::submit(urgency how, std::function<void()> work) {
  {
    std::lock_guard guard{mutex_};
    auto& queue = how == urgency::waited_for ? waited_for_ : background_;
    if (stopping_ || queue.size() >= max_queued_)
      return false;
    queue.push_back(std::move(work));
  }
  wake_.notify_one();
  return true;
}

void worker_pool::stop() {
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_)
    if (thread.joinable())
      thread.join();
}

void worker_pool::run() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock,
               [this] { return stopping_ || !waited_for_.empty() || !background_.empty(); });
    auto& queue = waited_for_.empty() ? background_ : waited_for_;
    if (queue.empty())
      return;
    auto work = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    work();
    work = nullptr; // What it holds is freed without the lock.
    lock.lock();
  }
}

} // namespace kvasir
