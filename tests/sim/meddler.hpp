// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/session_table.hpp"
#include "actors/storage_manager.hpp"

#include <caf/actor_cast.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

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
  double_release,  ///< A lease ends twice, and the second time it is another's.
  keep_ticket,     ///< One retrieve of each chunk uses no ticket up.
  stale_hash,      ///< A request that comes back with other tokens keeps its hashes.
  early_fence,     ///< A silent engine's slots are free although its process lives.
};

/// Stands before a storage manager or a session table, and spoils what passes.
class meddler final : public caf::monitorable_actor {
public:
  meddler(caf::actor_config& config, caf::strong_actor_ptr target, plant bug)
    : caf::monitorable_actor(config),
      target_(std::move(target)),
      bug_(bug) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* context) override {
    auto& content = element->content();
    auto replace = [&](auto message) {
      element
        = caf::make_mailbox_element(element->sender, element->mid, {}, std::move(message));
    };
    if (bug_ == plant::publish_expired && content.match_elements<expire_writes>()) {
      finish_chunks spoiled;
      for (auto id : content.get_as<expire_writes>(0).leases)
        spoiled.writes.push_back({id, 0});
      element->sender = nullptr; // Who let them expire expects no answer.
      replace(std::move(spoiled));
    } else if (bug_ == plant::free_expired && content.match_elements<expire_writes>()) {
      replace(end_leases{content.get_as<expire_writes>(0).leases});
    } else if (bug_ == plant::forget_release && content.match_elements<end_leases>()) {
      replace(end_leases{});
    } else if (bug_ == plant::forget_owner && content.match_elements<end_owner>()) {
      replace(end_owner{});
    } else if (bug_ == plant::double_release && content.match_elements<end_leases>()) {
      replace(released_twice(content.get_as<end_leases>(0)));
    } else if (bug_ == plant::lose_answer && content.match_elements<acquire_chunks>()
               && ++seen_ % 8 == 0) {
      return;
    } else if (bug_ == plant::skip_hold && content.match_elements<acquire_chunks>()) {
      // Holds that end at once.
      auto owner = content.get_as<acquire_chunks>(0).owner;
      target_->get()->enqueue(std::move(element), context);
      target_->get()->enqueue(
        caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, end_owner{owner}),
        context);
      return;
    } else if (bug_ == plant::keep_ticket && content.match_elements<lookup_prompt>()) {
      auto spoiled = content.get_as<lookup_prompt>(0);
      ++spoiled.readers;
      replace(std::move(spoiled));
    } else if (bug_ == plant::stale_hash && content.match_elements<lookup_prompt>()) {
      auto spoiled = content.get_as<lookup_prompt>(0);
      keep_tokens(spoiled.request_id, spoiled.tokens);
      replace(std::move(spoiled));
    } else if (bug_ == plant::stale_hash && content.match_elements<resolve_chunks>()) {
      auto spoiled = content.get_as<resolve_chunks>(0);
      keep_tokens(spoiled.range.request_id, spoiled.range.tokens);
      replace(std::move(spoiled));
    }
    target_->get()->enqueue(std::move(element), context);
  }

  const char* name() const override { return "meddler"; }

private:
  /// As if ids had no generation: the last ones are ended once more, whosever they are by now.
  end_leases released_twice(end_leases now) {
    auto again = std::exchange(released_, now.leases);
    for (auto id : again)
      now.leases.push_back(id + (lease_id{1} << 32));
    return now;
  }

  void keep_tokens(const std::string& request_id, std::vector<uint32_t>& tokens) {
    auto& first = first_tokens_.try_emplace(request_id, tokens).first->second;
    if (first.size() == tokens.size())
      tokens = first;
  }

  caf::strong_actor_ptr target_;
  plant bug_;
  int seen_ = 0;
  std::vector<lease_id> released_;
  std::map<std::string, std::vector<uint32_t>> first_tokens_;
};

/// @returns `target`, behind a meddler if there is a bug to plant.
template <class Handle>
Handle make_meddler(caf::actor_system& system, const Handle& target, plant bug) {
  if (bug == plant::none)
    return target;
  caf::actor_config config{nullptr};
  return caf::actor_cast<Handle>(caf::make_actor<meddler, caf::strong_actor_ptr>(
    system.next_actor_id(), system.node(), &system, config,
    caf::actor_cast<caf::strong_actor_ptr>(target), bug));
}

} // namespace kvasir::test
