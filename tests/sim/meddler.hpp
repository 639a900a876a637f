// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/storage_manager.hpp"

#include <caf/actor_cast.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>

namespace kvasir::test {

/// Bugs that a simulation must find.
enum class plant : uint8_t {
  none,
  publish_expired, ///< What was never written becomes readable when its time is over.
  free_expired,    ///< A slot is free while its engine may still write it.
  forget_release,  ///< Leases that were ended stay.
  lose_answer,     ///< A retrieve is never answered.
  skip_hold,       ///< Readers do not hold what they read.
  forget_owner,    ///< The end of an owner ends nothing.
};

/// Stands before a storage manager, and spoils what passes.
class meddler final : public caf::monitorable_actor {
public:
  meddler(caf::actor_config& config, storage_manager_actor manager, plant bug)
    : caf::monitorable_actor(config),
      manager_(std::move(manager)),
      bug_(bug) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* context) override {
    auto& content = element->content();
    auto target = caf::actor_cast<caf::abstract_actor*>(manager_);
    auto replace = [&](auto message) {
      element
        = caf::make_mailbox_element(element->sender, element->mid, {}, std::move(message));
    };
    if (bug_ == plant::publish_expired && content.match_elements<expire_writes>()) {
      finish_chunks spoiled;
      for (auto id : content.get_as<expire_writes>(0).leases)
        spoiled.writes.push_back({id, 0});
      replace(std::move(spoiled));
    } else if (bug_ == plant::free_expired && content.match_elements<expire_writes>()) {
      replace(end_leases{content.get_as<expire_writes>(0).leases});
    } else if (bug_ == plant::forget_release && content.match_elements<end_leases>()) {
      replace(end_leases{});
    } else if (bug_ == plant::forget_owner && content.match_elements<end_owner>()) {
      replace(end_owner{});
    } else if (bug_ == plant::lose_answer && content.match_elements<acquire_chunks>()
               && ++seen_ % 8 == 0) {
      return;
    } else if (bug_ == plant::skip_hold && content.match_elements<acquire_chunks>()) {
      // Holds that end at once.
      auto owner = content.get_as<acquire_chunks>(0).owner;
      target->enqueue(std::move(element), context);
      target->enqueue(
        caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, end_owner{owner}),
        context);
      return;
    }
    target->enqueue(std::move(element), context);
  }

  const char* name() const override { return "meddler"; }

private:
  storage_manager_actor manager_;
  plant bug_;
  int seen_ = 0;
};

inline storage_manager_actor make_meddler(caf::actor_system& system,
                                          const storage_manager_actor& manager, plant bug) {
  if (bug == plant::none)
    return manager;
  caf::actor_config config{nullptr};
  return caf::actor_cast<storage_manager_actor>(caf::make_actor<meddler, caf::strong_actor_ptr>(
    system.next_actor_id(), system.node(), &system, config, manager, bug));
}

} // namespace kvasir::test
