// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/call.hpp"
#include "actors/embedding/engine_core.hpp"
#include "actors/storage_manager.hpp"

#include <caf/actor_config.hpp>
#include <caf/monitorable_actor.hpp>
#include <caf/response_type.hpp>

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <vector>

namespace kvasir {

/// One call of an embedded client: a sequence of steps, each of which asks the storage manager,
/// copies, or ends the call. It is itself the actor that the manager answers.
///
///   active --ask, copy elsewhere--> parked --answer, turn--> active --end--> done
///                                   parked --deadline, cancel, close--> done
///
/// While active, exactly one thread runs its steps: the caller's, a copying thread or the I/O
/// unit. An abort of an active call is noticed at its next look (`stopped`) or when it parks. So
/// when a call has ended, no thread touches its tensors any more.
///
/// Threading: `abort` from any thread; steps as above. Lifetime: counted, as all actors.
class operation : public caf::monitorable_actor {
public:
  using clock = std::chrono::steady_clock;

  operation(caf::actor_config& config, std::shared_ptr<engine_core> core,
            clock::time_point deadline, std::stop_token stop);

  /// Runs the first steps.
  void start();

  /// Ends it with this error, as soon as nobody touches its tensors. Nothing if it has ended.
  void abort(errc why);

  clock::time_point deadline() const noexcept { return deadline_; }

  caf::strong_actor_ptr self() { return caf::strong_actor_ptr{ctrl()}; }

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* unit) override;
  const char* name() const override { return "engine_call"; }

protected:
  /// The first step.
  virtual void begin() = 0;

  /// Runs where `copy_here_or_elsewhere` decided.
  virtual void copy() {}

  /// Runs after `wake`.
  virtual void woken() {}

  /// Gives the error to who waits. Inputs are dropped before.
  virtual void settle_error(caf::error why) = 0;

  /// Lets go of tensors and the like; nobody touches them any more.
  virtual void drop_inputs() {}

  // -- steps; each is the last thing that a function does ---------------------------------

  /// Asks the manager and goes on in member function `Next`, which takes the answer.
  template <auto Next, class Request>
  void ask(Request&& what) {
    using traits = next_traits<decltype(Next)>;
    using declared
      = caf::response_type_t<storage_manager_actor::signatures, std::decay_t<Request>>;
    static_assert(std::is_same_v<declared, caf::detail::type_list<typename traits::answer>>,
                  "the manager answers this request with another type");
    next_ = [](operation& self, caf::type_erased_tuple& content) {
      if (!content.match_elements<typename traits::answer>())
        return false;
      (static_cast<typename traits::self&>(self)
       .*Next)(content.get_mutable_as<typename traits::answer>(0));
      return true;
    };
    before_asking();
    core_->unit().request(core_->manager(), std::forward<Request>(what), self());
    after_asking();
  }

  /// Goes on in `copy`: here if it is little, else on a copying thread.
  void copy_here_or_elsewhere(uint64_t bytes);

  /// `wake` may be called from now on; then goes on in `woken`, once `wait_for_wake` was called.
  void expect_wake() { before_asking(); }
  void wait_for_wake() { after_asking(); }

  void fail(caf::error why);

  /// The call ends with a value: the caller settles it next.
  void end();

  // --------------------------------------------------------------------------------------

  /// Whether the call should end now, with `stop_error`.
  bool stopped();
  caf::error stop_error() const;

  engine_core& core() const noexcept { return *core_; }
  const std::shared_ptr<engine_core>& shared_core() const noexcept { return core_; }

  std::vector<lease_id> leases_; ///< Given back when the call ends.

public:
  /// Goes on in `woken`, on the I/O unit. Any thread.
  void wake();

private:
  friend class pending_calls;

  template <class>
  struct next_traits;
  template <class Self, class Answer>
  struct next_traits<void (Self::*)(Answer&)> {
    using self = Self;
    using answer = Answer;
  };

  enum class phase : uint8_t { active, parked, done };
  enum class reply : uint8_t { none, here, awaited };

  struct stopper {
    operation* call;
    void operator()() const noexcept;
  };

  static constexpr size_t nowhere = std::numeric_limits<size_t>::max();

  void before_asking();
  void after_asking();
  void take_answer();
  void drop_answer();
  bool become_pending();
  bool unpark() noexcept;
  void abort_if_parked();
  void finish(caf::error why);
  void clean_up();

  std::shared_ptr<engine_core> core_;
  const clock::time_point deadline_;
  std::stop_token stop_;
  std::optional<std::stop_callback<stopper>> stop_callback_;
  bool (*next_)(operation&, caf::type_erased_tuple&) = nullptr;
  caf::mailbox_element_ptr answer_;
  std::atomic<phase> phase_{phase::active};
  std::atomic<reply> reply_{reply::none};
  std::atomic<uint8_t> abort_code_{0};
  bool pending_ = false;   ///< Was added to the pending calls.
  size_t place_ = nowhere; ///< There; under their lock.
};

/// A call whose outcome is a `T`.
template <class T>
class operation_of : public operation {
public:
  using value_type = T;

  operation_of(caf::actor_config& config, std::shared_ptr<engine_core> core,
               clock::time_point deadline, std::stop_token stop,
               std::shared_ptr<call_sink<T>> sink)
    : operation(config, std::move(core), deadline, std::move(stop)),
      sink_(std::move(sink)) {}

protected:
  void succeed(caf::expected<T> value) {
    auto sink = std::move(sink_);
    end();
    sink->settle(std::move(value));
  }

  void settle_error(caf::error why) override {
    auto sink = std::move(sink_);
    sink->settle(std::move(why));
  }

private:
  std::shared_ptr<call_sink<T>> sink_;
};

} // namespace kvasir
