#include "actors/caller_unit.hpp"

#include "support/io_fixture.hpp"

#include <caf/actor_config.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

/// Asking an actor from threads that are nobody's unit.

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// Notes what it is answered.
class note final : public caf::monitorable_actor {
public:
  explicit note(caf::actor_config& config) : caf::monitorable_actor(config) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    handover_acquire(this);
    failed = element->content().match_elements<caf::error>();
    answered_by = std::this_thread::get_id();
    ++answers;
    told.raise();
  }

  const char* name() const override { return "note"; }

  one_shot told;
  std::atomic<int> answers{0};
  std::atomic<bool> failed{false};
  std::atomic<std::thread::id> answered_by;
};

struct calling_fixture : io_fixture {
  ~calling_fixture() { end(actor); }

  caf::strong_actor_ptr make_note() {
    caf::actor_config nothing{nullptr};
    return caf::make_actor<note, caf::strong_actor_ptr>(system.next_actor_id(), system.node(),
                                                        &system, nothing);
  }

  static note& of(const caf::strong_actor_ptr& pointer) {
    return *static_cast<note*>(pointer->get());
  }

  one_shot inside; ///< The actor's handler was entered, and stays there.
  one_shot leave;
  caller_unit unit{system}; // Outlives the actor.
  probe_actor actor = spawn([this] {
    inside.raise();
    leave.wait();
  });
};

} // namespace

TEST_CASE_FIXTURE(calling_fixture, "the thread that asks runs the actor and has the answer") {
  unit.run_inline(actor);
  auto asker = make_note();
  unit.request(actor, list_objects{5}, asker);
  CHECK(of(asker).answers == 1);
  CHECK_FALSE(of(asker).failed);
  CHECK(record->seen() == std::set{std::this_thread::get_id()});
  CHECK(unit.counters().inline_resumes == 1);
  CHECK(unit.counters().scheduler_enqueues == 0);
}

TEST_CASE_FIXTURE(calling_fixture, "an actor that is not named goes to the scheduler") {
  auto asker = make_note();
  unit.request(actor, list_objects{5}, asker);
  REQUIRE(of(asker).told.wait());
  CHECK(record->seen().count(std::this_thread::get_id()) == 0);
  CHECK(unit.counters().inline_resumes == 0);
  CHECK(unit.counters().scheduler_enqueues == 1);
}

TEST_CASE_FIXTURE(calling_fixture,
                  "while one thread runs the actor it answers for the others, too") {
  unit.run_inline(actor);
  std::thread::id runner;
  auto first = make_note();
  std::jthread running{[&] {
    runner = std::this_thread::get_id();
    unit.request(actor, check_exist{}, first);
  }};
  REQUIRE(inside.wait());
  auto second = make_note();
  unit.request(actor, list_objects{5}, second); // Does not wait.
  CHECK(of(second).answers == 0);
  leave.raise();
  REQUIRE(of(second).told.wait());
  running.join();
  CHECK(of(second).answered_by == runner);
  CHECK(of(first).answers == 1);
  CHECK(record->seen() == std::set{runner});
}

TEST_CASE_FIXTURE(calling_fixture, "a caller does not run an actor for ever") {
  unit.run_inline(actor);
  // Each message but the last sends the next one.
  unit.send(actor, pool_grown{10 * caller_unit::quantum, false});
  CHECK(record->count() >= caller_unit::quantum);
  CHECK(unit.counters().scheduler_enqueues == 1);
  auto asker = make_note();
  unit.request(actor, list_objects{5}, asker);
  CHECK(of(asker).told.wait());
}

TEST_CASE_FIXTURE(calling_fixture, "a question to a dead actor fails") {
  unit.run_inline(actor);
  unit.send(actor, pool_grown{0, false});
  end(actor);
  system.registry().await_running_count_equal(0);
  auto asker = make_note();
  unit.request(actor, list_objects{5}, asker);
  REQUIRE(of(asker).told.wait());
  CHECK(of(asker).failed);
}

TEST_CASE_FIXTURE(calling_fixture,
                  "many threads ask through one unit, one at a time in the actor") {
  unit.run_inline(actor);
  constexpr auto num_threads = 4;
  constexpr auto num_questions = 2000;
  std::vector<caf::strong_actor_ptr> askers;
  for (auto t = 0; t < num_threads; ++t)
    askers.push_back(make_note());
  {
    std::vector<std::jthread> threads;
    for (auto& asker : askers)
      threads.emplace_back([&] {
        for (uint64_t i = 0; i < num_questions; ++i)
          unit.request(actor, list_objects{i}, asker);
      });
  }
  // What the scheduler was handed may still be under way: a last question comes after it.
  auto last = make_note();
  unit.request(actor, list_objects{0}, last);
  REQUIRE(of(last).told.wait());
  for (auto& asker : askers)
    CHECK(of(asker).answers == num_questions);
  CHECK_FALSE(record->overlapped);
}
