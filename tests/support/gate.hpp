// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>

#include <utility>
#include <vector>

namespace kvasir::test {

/// Stands before an actor. While it is closed it keeps what arrives, so that a test can look at
/// what happens between a question and its answer.
///
/// Threading: the test's thread, on the deterministic scheduler.
template <class Handle>
class gate {
public:
  gate(caf::actor_system& system, const Handle& target) {
    caf::actor_config config{nullptr};
    auto actor = caf::make_actor<keeper, caf::strong_actor_ptr>(
      system.next_actor_id(), system.node(), &system, config, target);
    keeper_ = static_cast<keeper*>(actor->get());
    handle_ = caf::actor_cast<Handle>(actor);
  }

  /// What one sends to in the target's place.
  const Handle& handle() const { return handle_; }

  void close() { keeper_->closed = true; }

  /// Lets pass what was kept, in the order in which it came.
  void open() {
    keeper_->closed = false;
    for (auto& element : std::exchange(keeper_->kept, {}))
      keeper_->enqueue(std::move(element), nullptr);
  }

private:
  class keeper final : public caf::monitorable_actor {
  public:
    keeper(caf::actor_config& config, Handle target)
      : caf::monitorable_actor(config),
        target_(std::move(target)) {}

    void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* context) override {
      if (closed)
        kept.push_back(std::move(element));
      else
        caf::actor_cast<caf::abstract_actor*>(target_)->enqueue(std::move(element), context);
    }

    const char* name() const override { return "gate"; }

    bool closed = false;
    std::vector<caf::mailbox_element_ptr> kept;

  private:
    Handle target_;
  };

  Handle handle_;
  keeper* keeper_ = nullptr; ///< Lives as long as the handle.
};

} // namespace kvasir::test
