// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/call_state.hpp"

#include <caf/expected.hpp>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace kvasir {

/// How long a call may take, and who may stop it.
struct call_options {
  /// More than 0, at most an hour. Passed: `errc::timed_out`, never early, up to 100 ms late.
  std::chrono::milliseconds deadline{5'000};
  /// Asked to stop: `errc::cancelled`.
  std::stop_token stop{};
};

/// A question or a transfer that is under way already; it ends exactly once, with a value or an
/// error. One mechanism, three forms: `then`, `future` (and `get`), `co_await`. Each uses it up. A
/// call that is dropped goes on unseen.
///
/// Threading: a continuation runs on the thread that attaches it if the call has ended by then,
/// otherwise on a thread of the client's. It must neither block nor throw.
template <class T>
class [[nodiscard]] call {
public:
  using value_type = T;
  using outcome = caf::expected<T>;

  explicit call(std::shared_ptr<call_state<T>> state) noexcept : state_(std::move(state)) {}

  /// A call that failed before it began.
  explicit call(caf::error why) : state_(std::make_shared<call_state<T>>()) {
    state_->settle(std::move(why));
  }

  /// Whether it ended.
  bool ready() const noexcept { return state_->settled(); }

  /// Calls `f(caf::expected<T>)` once.
  template <class F>
  void then(F f) && {
    auto state = std::move(state_);
    if (state->settled()) {
      f(state->take());
      return;
    }
    auto waiting = std::make_unique<continuation<F>>(std::move(f));
    if (state->await(*waiting))
      waiting.release(); // Deletes itself when it was run.
    else
      waiting->function(state->take());
  }

  std::future<outcome> future() && {
    std::promise<outcome> promise;
    auto result = promise.get_future();
    std::move(*this).then([promise = std::move(promise)](outcome got) mutable {
      promise.set_value(std::move(got));
    });
    return result;
  }

  /// Waits. Not on a thread of the client's, i.e. not in a continuation.
  outcome get() && {
    if (state_->settled())
      return state_->take();
    return std::move(*this).future().get();
  }

  class awaiter final : public call_consumer<T> {
  public:
    explicit awaiter(std::shared_ptr<call_state<T>> state) noexcept
      : state_(std::move(state)) {}
    bool await_ready() const noexcept { return state_->settled(); }
    bool await_suspend(std::coroutine_handle<> waiting) {
      waiting_ = waiting;
      return state_->await(*this);
    }
    outcome await_resume() { return got_ ? std::move(*got_) : state_->take(); }

  private:
    void run(outcome got) noexcept override {
      got_.emplace(std::move(got));
      waiting_.resume();
    }

    std::shared_ptr<call_state<T>> state_;
    std::coroutine_handle<> waiting_;
    std::optional<outcome> got_;
  };

  awaiter operator co_await() && { return awaiter{std::move(state_)}; }

private:
  template <class F>
  struct continuation final : call_consumer<T> {
    explicit continuation(F f) : function(std::move(f)) {}
    void run(outcome got) noexcept override {
      function(std::move(got));
      delete this;
    }
    F function;
  };

  std::shared_ptr<call_state<T>> state_;
};

/// One call of many: ends when all have, with the outcome of each, in order. They are under way
/// beside each other.
template <class T>
call<std::vector<caf::expected<T>>> all(std::vector<call<T>> calls) {
  struct gathering {
    std::vector<std::optional<caf::expected<T>>> outcomes;
    std::atomic<size_t> left;
    std::shared_ptr<call_state<std::vector<caf::expected<T>>>> state
      = std::make_shared<call_state<std::vector<caf::expected<T>>>>();

    void one_less() {
      if (left.fetch_sub(1, std::memory_order_acq_rel) != 1)
        return;
      std::vector<caf::expected<T>> result;
      result.reserve(outcomes.size());
      for (auto& each : outcomes)
        result.push_back(std::move(*each));
      state->settle(std::move(result));
    }
  };
  auto gathered = std::make_shared<gathering>();
  gathered->outcomes.resize(calls.size());
  gathered->left = calls.size() + 1; // One for this loop.
  for (size_t i = 0; i < calls.size(); ++i)
    std::move(calls[i]).then([gathered, i](caf::expected<T> got) {
      gathered->outcomes[i].emplace(std::move(got));
      gathered->one_less();
    });
  auto state = gathered->state;
  gathered->one_less();
  return call<std::vector<caf::expected<T>>>{std::move(state)};
}

} // namespace kvasir
