// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/memory_tier.hpp"

#include <caf/mailbox_element.hpp>
#include <caf/monitorable_actor.hpp>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

namespace kvasir::test {

/// Bugs to plant. A simulation that does not find each of them proves nothing.
enum class fault : uint8_t {
  none,
  skipped_abort,    ///< A reservation is not given back.
  double_release,   ///< Ending one hold ends two.
  stale_epoch,      ///< `clear` forgets to hide the objects.
  lost_reply,       ///< A request is carried out and not answered.
  overlapping_slot, ///< Memory is handed out that belongs to another object.
  forgotten_hold,   ///< An object that is read can be evicted.
  published_abort,  ///< A torn write becomes readable.
  published_expiry, ///< A write that expired becomes readable.
  forgotten_parent, ///< A chunk can be evicted before its child.
  unchecked_hold,   ///< An engine reads what it found without looking again.
  unseen_board,     ///< Nobody looks at what engines hold.
};

constexpr std::string_view to_string(fault what) {
  switch (what) {
    case fault::none:
      return "none";
    case fault::skipped_abort:
      return "a skipped abort";
    case fault::double_release:
      return "a double release";
    case fault::stale_epoch:
      return "a stale epoch";
    case fault::lost_reply:
      return "a lost reply";
    case fault::overlapping_slot:
      return "an overlapping slot";
    case fault::forgotten_hold:
      return "a forgotten hold";
    case fault::published_abort:
      return "a published abort";
    case fault::published_expiry:
      return "a published expiry";
    case fault::forgotten_parent:
      return "a forgotten parent";
    case fault::unchecked_hold:
      return "an unchecked hold";
    case fault::unseen_board:
      return "an unseen board";
  }
  return "?";
}

/// Decides when a planted bug shows: every n-th time only, for bugs are rarely constant.
class strike_counter {
public:
  explicit strike_counter(uint64_t period) : period_(period) {}
  bool operator()() { return ++count_ % period_ == 0; }

private:
  uint64_t period_;
  uint64_t count_ = 0;
};

/// A working tier with one bug in front of it.
class faulty_tier final : public memory_tier {
public:
  faulty_tier(std::unique_ptr<memory_tier> inner, fault what, uint64_t period)
    : inner_(std::move(inner)),
      what_(what),
      strikes_(period) {}

  caf::expected<reserved_object> reserve(const object_claim& claim,
                                         size_t& evict_budget) override {
    auto seen = claim;
    if (what_ == fault::forgotten_parent && !claim.parent.empty() && strikes_())
      seen.parent = {};
    auto result = inner_->reserve(seen, evict_budget);
    if (result && what_ == fault::overlapping_slot) {
      if (strikes_() && last_.size_bytes >= claim.size_bytes)
        result->where.offset_bytes = last_.offset_bytes;
      last_ = result->where;
    }
    return result;
  }

  uint64_t memory_bytes(uint64_t size_bytes) const override {
    return inner_->memory_bytes(size_bytes);
  }

  caf::error publish(object_handle handle, std::optional<uint64_t> checksum,
                     conflict what) override {
    return inner_->publish(handle, checksum, what);
  }

  void seal(object_handle handle, uint64_t checksum) override {
    inner_->seal(handle, checksum);
  }

  caf::error abort(object_handle handle) override {
    if (what_ == fault::skipped_abort && strikes_())
      return caf::none;
    if (what_ == fault::published_abort && strikes_())
      return inner_->publish(handle, 0, conflict::replace);
    return inner_->abort(handle);
  }

  caf::expected<held_object> hold(const object_key& key) override {
    auto result = inner_->hold(key);
    if (result && what_ == fault::forgotten_hold && strikes_())
      inner_->release(result->handle);
    return result;
  }

  caf::expected<held_object> hold(object_handle handle) override {
    return inner_->hold(handle);
  }

  caf::error release(object_handle handle) override {
    auto result = inner_->release(handle);
    if (what_ == fault::double_release && strikes_())
      inner_->release(handle);
    return result;
  }

  bool contains(const object_key& key) override { return inner_->contains(key); }
  bool present(const object_key& key) const override { return inner_->present(key); }
  uint64_t unheld_bytes(const object_key& key) const override {
    return inner_->unheld_bytes(key);
  }
  bool remove(const object_key& key) override { return inner_->remove(key); }
  void drop(object_handle handle) override { inner_->drop(handle); }

  void clear(const std::vector<object_handle>& keep) override {
    if (what_ != fault::stale_epoch || !strikes_())
      inner_->clear(keep);
  }

  bool sweep() override { return inner_->sweep(); }
  void revisit() override { inner_->revisit(); }
  bool in_limbo() const override { return inner_->in_limbo(); }
  object_list list(uint64_t cursor) const override { return inner_->list(cursor); }
  void report_changes(std::vector<object_change>* changes) override {
    inner_->report_changes(changes);
  }
  void grow(uint64_t usable_bytes) override { inner_->grow(usable_bytes); }
  caf::error set_quota(std::string_view tenant, uint64_t limit_bytes) override {
    return inner_->set_quota(tenant, limit_bytes);
  }
  std::vector<tenant_quota> quotas() const override { return inner_->quotas(); }
  tier_usage usage() const override { return inner_->usage(); }
  std::string audit() const override { return inner_->audit(); }

private:
  std::unique_ptr<memory_tier> inner_;
  fault what_;
  strike_counter strikes_;
  slot last_;
};

/// Stands in front of a storage manager and keeps every n-th expiry to itself: of those of
/// several writes, for a single one may be of a lease that is not there, which must be counted.
class forgetful_door final : public caf::monitorable_actor {
public:
  forgetful_door(caf::actor_config& config, caf::strong_actor_ptr behind, uint64_t period)
    : caf::monitorable_actor(config),
      behind_(std::move(behind)),
      strikes_(period) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* unit) override {
    auto& content = element->content();
    if (content.match_elements<expire_writes>()
        && content.get_as<expire_writes>(0).leases.size() > 1 && strikes_())
      element = caf::make_mailbox_element(element->sender, element->mid, {}, expire_writes{});
    behind_->enqueue(std::move(element), unit);
  }

  const char* name() const override { return "forgetful_door"; }

private:
  caf::strong_actor_ptr behind_;
  strike_counter strikes_;
};

/// Hands on what an observer of a storage manager is told, while the manager tells it.
class change_box final : public caf::monitorable_actor {
public:
  using listener = std::function<void(const object_change&)>;

  change_box(caf::actor_config& config, listener listen)
    : caf::monitorable_actor(config),
      listen_(std::move(listen)) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    auto content = element->move_content_to_message();
    if (content.match_elements<objects_changed>())
      for (auto& change : content.get_as<objects_changed>(0).changes)
        listen_(change);
  }

  const char* name() const override { return "change_box"; }

private:
  listener listen_;
};

/// Stands in front of an actor and makes it forget whom to answer, every n-th time.
class lossy_door final : public caf::monitorable_actor {
public:
  lossy_door(caf::actor_config& config, caf::strong_actor_ptr behind, uint64_t period)
    : caf::monitorable_actor(config),
      behind_(std::move(behind)),
      strikes_(period) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* unit) override {
    if (element->sender && strikes_())
      element->sender = nullptr;
    behind_->enqueue(std::move(element), unit);
  }

  const char* name() const override { return "lossy_door"; }

private:
  caf::strong_actor_ptr behind_;
  strike_counter strikes_;
};

} // namespace kvasir::test
