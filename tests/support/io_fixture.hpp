// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/handover.hpp"
#include "actors/io_unit.hpp"
#include "messages/configure.hpp"
#include "messages/storage_messages.hpp"
#include "support/one_shot.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>
#include <caf/send.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace kvasir::test {

using namespace std::chrono_literals;

/// An actor with one habit per message, for tests of those who ask it.
using probe_actor = caf::typed_actor<
  /// Answers at once: cursor plus one, or `errc::not_found` for the largest cursor.
  caf::replies_to<list_objects>::with<object_list>, caf::replies_to<check_health>::with<void>,
  /// Answers when `pool_grown{0}` arrives.
  caf::replies_to<check_pressure>::with<pressure>,
  /// Calls `during_exist`, which may block, before it answers.
  caf::replies_to<check_exist>::with<exist_result>,
  /// Sends itself n - 1, until 0 opens the gate.
  caf::reacts_to<pool_grown>>;

/// Where and how often handlers ran.
struct probe_record {
  void enter() {
    if (inside.fetch_add(1) != 0)
      overlapped = true;
    std::lock_guard guard{mutex};
    threads.insert(std::this_thread::get_id());
    ++handled;
  }
  void leave() { inside.fetch_sub(1); }

  std::set<std::thread::id> seen() {
    std::lock_guard guard{mutex};
    return threads;
  }
  uint64_t count() {
    std::lock_guard guard{mutex};
    return handled;
  }

  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  std::mutex mutex;
  std::set<std::thread::id> threads;
  uint64_t handled = 0;
};

class probe final : public probe_actor::base {
public:
  probe(caf::actor_config& config, std::shared_ptr<probe_record> record,
        std::function<void()> during_exist, std::function<void()> on_gate)
    : probe_actor::base(config),
      record_(std::move(record)),
      during_exist_(std::move(during_exist)),
      on_gate_(std::move(on_gate)) {}

  behavior_type make_behavior() override {
    return {
      [this](const list_objects& what) -> caf::result<object_list> {
        visit here{this};
        if (what.cursor == UINT64_MAX)
          return caf::make_error(errc::not_found);
        return object_list{{}, what.cursor + 1};
      },
      [this](const check_health&) -> caf::result<void> {
        visit here{this};
        return caf::unit;
      },
      [this](const check_pressure&) -> caf::result<pressure> {
        visit here{this};
        gated_.push_back(make_response_promise<pressure>());
        return gated_.back();
      },
      [this](const check_exist&) -> caf::result<exist_result> {
        visit here{this};
        if (during_exist_)
          during_exist_();
        return exist_result{{1}};
      },
      [this](const pool_grown& what) {
        visit here{this};
        if (what.usable_bytes > 0) {
          send(this, pool_grown{what.usable_bytes - 1, false});
          return;
        }
        for (auto& promise : gated_)
          promise.deliver(pressure{true});
        gated_.clear();
        if (on_gate_)
          on_gate_();
      },
    };
  }

  void on_exit() override {
    for (auto& promise : gated_)
      promise.deliver(caf::make_error(errc::peer_unreachable));
    gated_.clear();
  }

private:
  struct visit {
    explicit visit(probe* self) : scope(self), record(*self->record_) { record.enter(); }
    ~visit() { record.leave(); }
    handover_scope scope;
    probe_record& record;
  };

  std::shared_ptr<probe_record> record_;
  std::function<void()> during_exist_;
  std::function<void()> on_gate_;
  std::vector<caf::typed_response_promise<pressure>> gated_;
};

/// A task whose `run` and end a test sees.
struct probe_task final : io_task {
  explicit probe_task(std::function<void()> what = {}) : on_run(std::move(what)) {}
  ~probe_task() override {
    if (on_end)
      on_end();
  }

  void on_events(uint32_t bits) override { events |= bits; }
  void run() override {
    ++runs;
    if (on_run)
      on_run();
  }

  std::function<void()> on_run;
  std::function<void()> on_end;
  uint32_t events = 0;
  int runs = 0;
};

/// A real actor system with two scheduler threads, and units on threads of their own.
struct io_fixture {
  struct config : caf::actor_system_config {
    config() {
      configure(*this);
      set("scheduler.policy", caf::atom("sharing"));
      set("scheduler.max-threads", size_t{2});
      set("logger.verbosity", caf::atom("quiet"));
    }
  };

  /// Spawns an actor that records in `record`. Lazily, or one of CAF's workers might still be
  /// busy with its first step when a unit asks it.
  probe_actor spawn(std::function<void()> during_exist = {},
                    std::function<void()> on_gate = {}) {
    return system.spawn<probe, caf::lazy_init>(record, std::move(during_exist),
                                               std::move(on_gate));
  }

  /// Runs `what` on the unit's thread and waits for its end.
  template <class What>
  static void on_unit(io_unit& unit, What what) {
    one_shot done;
    unit.post([&] {
      what();
      done.raise();
    });
    REQUIRE(done.wait());
  }

  static void end(const probe_actor& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }

  /// Opens the gate of `actor`, from this thread.
  static void open_gate(const probe_actor& actor) {
    handover_release(caf::actor_cast<caf::abstract_actor*>(actor));
    caf::anon_send(actor, pool_grown{0, false});
  }

  std::shared_ptr<probe_record> record = std::make_shared<probe_record>();
  config system_config;
  caf::actor_system system{system_config};
};

} // namespace kvasir::test
