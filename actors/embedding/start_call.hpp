// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/call.hpp"
#include "actors/embedding/engine_calls.hpp"
#include "actors/embedding/engine_core.hpp"
#include "messages/kv_layout.hpp"

#include <chrono>
#include <memory>
#include <utility>

/// How functions of a client become calls.
namespace kvasir {

/// Where a layer lies in a chunk: planes of `size_bytes` bytes each.
struct layer_planes {
  size_t count;
  size_t layers;
  size_t size_bytes;

  explicit layer_planes(const mp::kv_layout& layout)
    : count(layout.single_plane ? 1 : 2),
      layers(layout.layers),
      size_bytes(layout.chunk_bytes() / (count * layers)) {}

  size_t offset(size_t plane, size_t layer) const {
    return (plane * layers + layer) * size_bytes;
  }
};

inline constexpr std::chrono::hours longest_deadline{1};

inline caf::error check(const call_options& options) {
  if (options.deadline.count() > 0 && options.deadline <= longest_deadline)
    return caf::none;
  return caf::make_error(errc::invalid_argument,
                         "a deadline of " + std::to_string(options.deadline.count())
                           + " ms, not more than 0 and at most an hour");
}

/// Starts an `Operation` whose outcome is the call's.
template <class Operation, class T, class... Args>
call<T> start(const std::shared_ptr<engine_core>& core, const call_options& options,
              Args&&... args) {
  if (auto why = check(options))
    return call<T>{std::move(why)};
  auto state = std::make_shared<call_state<T>>();
  core->launch<Operation>(pending_calls::clock::now() + options.deadline, options.stop,
                          std::shared_ptr<call_sink<T>>{state}, std::forward<Args>(args)...);
  return call<T>{std::move(state)};
}

/// Starts an `Operation`; the call's value is what `map` makes of its value.
template <class Operation, class T, class F, class... Args>
call<T> start_mapped(const std::shared_ptr<engine_core>& core, const call_options& options,
                     F map, Args&&... args) {
  if (auto why = check(options))
    return call<T>{std::move(why)};
  using value = typename Operation::value_type;
  auto state = std::make_shared<call_state<T>>();
  std::shared_ptr<call_sink<value>> sink
    = std::make_shared<mapping_sink<value, T, F>>(state, std::move(map));
  core->launch<Operation>(pending_calls::clock::now() + options.deadline, options.stop,
                          std::move(sink), std::forward<Args>(args)...);
  return call<T>{std::move(state)};
}

/// Starts a `First`, and with its value a `Second`, under one deadline.
template <class First, class Second, class Input, class... Args>
call<typename Second::value_type> start_chained(const std::shared_ptr<engine_core>& core,
                                                const call_options& options, Input input,
                                                Args&&... args) {
  using between = typename First::value_type;
  using result = typename Second::value_type;
  struct link final : call_sink<between> {
    std::shared_ptr<engine_core> core;
    pending_calls::clock::time_point deadline;
    std::stop_token stop;
    std::shared_ptr<call_state<result>> state;
    Input input;

    void settle(caf::expected<between> outcome) override {
      if (outcome)
        core->launch<Second>(deadline, std::move(stop),
                             std::shared_ptr<call_sink<result>>{state}, std::move(*outcome),
                             std::move(input));
      else
        state->settle(std::move(outcome.error()));
    }
  };
  if (auto why = check(options))
    return call<result>{std::move(why)};
  auto chained = std::make_shared<link>();
  chained->core = core;
  chained->deadline = pending_calls::clock::now() + options.deadline;
  chained->stop = options.stop;
  chained->state = std::make_shared<call_state<result>>();
  chained->input = std::move(input);
  auto state = chained->state;
  core->launch<First>(chained->deadline, options.stop,
                      std::shared_ptr<call_sink<between>>{chained},
                      std::forward<Args>(args)...);
  return call<result>{std::move(state)};
}

} // namespace kvasir
