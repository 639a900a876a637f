// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/storage_manager.hpp"
#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "support/simulation.hpp"

#include <caf/exit_reason.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <memory>
#include <string>
#include <vector>

namespace kvasir::test {

inline constexpr uint64_t page = slot_allocator::page_bytes;

inline object_key key(uint64_t number) {
  return {"key-" + std::to_string(number)};
}

/// Whether `result` failed with exactly this code.
template <class T>
bool failed_with(const caf::expected<T>& result, errc code) {
  return !result && result.error() == code;
}

inline object_observer_actor::behavior_type
noting_observer(object_observer_actor::pointer, std::vector<object_change>* changes) {
  return {[changes](const objects_changed& told) {
    CHECK(!told.changes.empty());
    changes->insert(changes->end(), told.changes.begin(), told.changes.end());
  }};
}

/// A storage manager over a pool of a few pages, on the deterministic scheduler.
class storage_fixture {
public:
  struct setup {
    uint64_t pages = 16;
    /// Usable from the start; the pool counts as complete if that is all of it.
    uint64_t usable_pages = UINT64_MAX;
    storage_manager_options options{8 * page, 16 * page, 16 * page, 8, 12 * page, 12 * page};
    const char* policy = "lru";
    std::vector<object_change>* changes = nullptr; ///< Where an observer notes what it is told.
    object_index* index = nullptr; ///< With `board`: engines read without asking.
    hold_board* board = nullptr;
  };

  storage_fixture() : storage_fixture(setup{}) {}

  explicit storage_fixture(const setup& how) {
    auto tier = std::make_unique<pool_tier>(how.pages * page,
                                            std::move(*make_eviction_policy(how.policy)));
    tier_ = tier.get();
    if (how.index != nullptr)
      tier->share(*how.index, *how.board);
    object_observer_actor observer;
    if (how.changes != nullptr)
      observer = sim.system().spawn(noting_observer, how.changes);
    manager_ = sim.system().spawn<storage_manager>(std::move(tier), how.options, observer);
    auto usable = std::min(how.pages, how.usable_pages);
    if (usable > 0)
      grow(usable, usable == how.pages);
  }

  ~storage_fixture() {
    caf::anon_send_exit(manager_, caf::exit_reason::user_shutdown);
    manager_ = nullptr;
    sim.run();
  }

  const storage_manager_actor& manager() const { return manager_; }
  const memory_tier& tier() const { return *tier_; }

  template <class Result = void, class Request>
  caf::expected<Result> ask(Request request) {
    auto result = sim.ask<Result>(manager_, std::move(request));
    CHECK(tier_->audit() == "");
    return result;
  }

  template <class Result = void, class Request>
  awaited<Result> start(Request request) {
    return sim.start<Result>(manager_, std::move(request));
  }

  void grow(uint64_t pages, bool complete) {
    caf::anon_send(manager_, pool_grown{pages * page, complete});
    sim.run();
  }

  caf::expected<write_lease> reserve(owner_id owner, uint64_t number, uint64_t pages = 1) {
    return ask<write_lease>(reserve_write{owner, key(number), {}, pages * page});
  }

  /// Reserves and publishes. @returns whether both worked.
  bool store(uint64_t number, uint64_t pages = 1, uint64_t checksum = 0) {
    auto lease = reserve(writer, number, pages);
    return lease && ask(finish_write{lease->id, checksum});
  }

  caf::expected<read_lease> acquire(owner_id owner, uint64_t number) {
    return ask<read_lease>(acquire_read{owner, key(number)});
  }

  bool exists(uint64_t number) {
    auto result = ask<exist_result>(check_exist{{key(number)}});
    return result && result->found == std::vector<uint8_t>{1};
  }

  storage_status status() {
    auto result = ask<storage_status>(get_storage_status{});
    REQUIRE(result);
    return *result;
  }

  static constexpr owner_id writer = 1'000'000;

  simulation sim;

private:
  memory_tier* tier_ = nullptr;
  storage_manager_actor manager_;
};

} // namespace kvasir::test
