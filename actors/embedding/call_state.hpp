// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <atomic>
#include <optional>
#include <utility>

/// The two ends of a `call`: who brings its outcome, and who waits for it.
namespace kvasir {

/// Takes the outcome of a call.
template <class T>
class call_sink {
public:
  call_sink() = default;
  call_sink(const call_sink&) = delete;
  call_sink& operator=(const call_sink&) = delete;
  virtual ~call_sink() = default;

  /// Called exactly once, on any thread.
  virtual void settle(caf::expected<T> outcome) = 0;
};

/// Waits for an outcome.
template <class T>
class call_consumer {
public:
  call_consumer() = default;
  call_consumer(const call_consumer&) = delete;
  call_consumer& operator=(const call_consumer&) = delete;
  virtual ~call_consumer() = default;

  /// Called at most once; the consumer may be gone when this returns.
  virtual void run(caf::expected<T> outcome) noexcept = 0;
};

/// Holds an outcome until somebody takes it, or a consumer until there is one.
///
///   running --settle--> settled --take--> (used up)
///   running --await--> awaited --settle--> the consumer runs
///
/// Threading: one thread settles, one other may wait.
template <class T>
class call_state final : public call_sink<T> {
public:
  void settle(caf::expected<T> outcome) override {
    outcome_.emplace(std::move(outcome));
    if (step_.exchange(step::settled, std::memory_order_acq_rel) == step::awaited)
      consumer_->run(take());
  }

  bool settled() const noexcept {
    return step_.load(std::memory_order_acquire) == step::settled;
  }

  /// @pre `settled()`, once.
  caf::expected<T> take() { return std::move(*outcome_); }

  /// @returns false if the outcome is there already: `consumer` is not called.
  bool await(call_consumer<T>& consumer) {
    consumer_ = &consumer;
    auto expected = step::running;
    return step_.compare_exchange_strong(expected, step::awaited, std::memory_order_acq_rel);
  }

private:
  enum class step : uint8_t { running, awaited, settled };

  std::atomic<step> step_{step::running};
  call_consumer<T>* consumer_ = nullptr;
  std::optional<caf::expected<T>> outcome_;
};

/// Settles another call with what `F` makes of a value; errors pass.
template <class T, class U, class F>
class mapping_sink final : public call_sink<T> {
public:
  mapping_sink(std::shared_ptr<call_sink<U>> target, F map)
    : target_(std::move(target)),
      map_(std::move(map)) {}

  void settle(caf::expected<T> outcome) override {
    if (outcome)
      target_->settle(map_(std::move(*outcome)));
    else
      target_->settle(std::move(outcome.error()));
  }

private:
  std::shared_ptr<call_sink<U>> target_;
  F map_;
};

} // namespace kvasir
