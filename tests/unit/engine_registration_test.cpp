#include "support/engine_fixture.hpp"
#include "support/gate.hpp"

#include <doctest/doctest.h>

/// What happens to an engine while answers that it waits for are under way.

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// Instance 1 asks through gates.
class registration_fixture : public engine_fixture {
public:
  registration_fixture()
    : to_sessions(sim.system(), sessions),
      to_manager(sim.system(), manager()) {
    auto through_gates = engine_setup;
    through_gates.manager = to_manager.handle();
    engines[1] = sim.system().spawn<engine>(1, to_sessions.handle(), through_gates);
  }

  template <class Result, class Message>
  awaited<Result> begin(Message message) {
    auto result = sim.start<Result>(engines.at(1), std::move(message));
    sim.run();
    return result;
  }

  static register_engine registration(const mp::kv_layout& layout = page_layout()) {
    return {"model", 1, layout, {}, 0};
  }

  void open_all() {
    to_sessions.open();
    to_manager.open();
    sim.run();
  }

  gate<session_table_actor> to_sessions;
  gate<storage_manager_actor> to_manager;
};

/// Chunks of two pages.
mp::kv_layout large_layout() {
  auto result = page_layout();
  result.layers = 2;
  return result;
}

inline_tensor tensor_of(const mp::kv_layout& layout) {
  auto dims = layout.shape();
  return {layout.dtype, {dims.dims().begin(), dims.dims().end()}};
}

} // namespace

TEST_SUITE_BEGIN("engine registration");

TEST_CASE_FIXTURE(registration_fixture, "who unregisters while it is registered stays away") {
  to_sessions.close();
  auto registered = begin<void>(registration());
  auto left = begin<void>(unregister_engine{});
  CHECK(left.get());
  CHECK(registered.pending());
  open_all();
  CHECK(failed_with(registered.get(), errc::not_found));
  CHECK_FALSE(look(1).registered);
  CHECK(session_counts().layouts == 0);
  CHECK(enroll(1));
  CHECK(put(1, "r", make_prompt(1, 1)));
}

TEST_CASE_FIXTURE(registration_fixture, "a refused revival does not end a later registration") {
  REQUIRE(enroll(1));
  REQUIRE(tell<void>(1, engine_ping{}));
  pass(31s);
  REQUIRE_FALSE(look(1).registered);
  REQUIRE(enroll(2, page_layout(tensor_dtype::float32)));
  to_sessions.close();
  REQUIRE(begin<void>(engine_ping{}).get()); // It will be refused: another layout is in use.
  REQUIRE(begin<void>(unregister_engine{}).get());
  auto again = begin<void>(registration(page_layout(tensor_dtype::float32)));
  open_all();
  CHECK(again.get());
  CHECK(look(1).registered);
  CHECK(put(1, "r", make_prompt(1, 1)));
}

TEST_CASE_FIXTURE(registration_fixture, "a transfer does not outlive its registration") {
  REQUIRE(enroll(1));
  auto what = range("r", make_prompt(1, 2), 0, 2);
  SUBCASE("while its chunks are named") {
    to_sessions.close();
  }
  SUBCASE("while its slots are reserved") {
    to_manager.close();
  }
  auto plan = begin<store_plan>(prepare_store{what});
  REQUIRE(plan.pending());
  auto left = begin<void>(unregister_engine{});
  auto again = begin<void>(registration());
  open_all();
  CHECK(left.get());
  CHECK(again.get());
  CHECK(failed_with(plan.get(), errc::not_found));
  CHECK(leases() == 0);
  CHECK(tell<engine_status>(1, get_engine_status{})->pending_writes == 0);
  CHECK(prepare(1, what).slots.size() == 2);
}

TEST_CASE_FIXTURE(registration_fixture,
                  "chunks of the next layout do not fit the last one's slots") {
  REQUIRE(enroll(1));
  to_manager.close();
  auto plan = begin<inline_store_plan>(
    begin_inline_store{range("r", make_prompt(1, 1), 0, 1), {tensor_of(large_layout())}});
  auto again = begin<void>(registration(large_layout()));
  open_all();
  CHECK(again.get());
  REQUIRE(plan.count() == 1);
  CHECK((!plan.get() || plan.get()->slots.empty()));
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(registration_fixture,
                  "slots on their way forbid nothing, but are not given") {
  REQUIRE(enroll(1));
  to_manager.close();
  auto plan = begin<store_plan>(prepare_store{range("r", make_prompt(1, 1), 0, 1)});
  auto again = begin<void>(registration(large_layout()));
  open_all();
  CHECK(again.get());
  CHECK(failed_with(plan.get(), errc::not_found));
  CHECK(leases() == 0);
  CHECK(tell<engine_status>(1, get_engine_status{})->handed_out_bytes == 0);
}

TEST_CASE_FIXTURE(registration_fixture,
                  "an instance's former actor does not take its layout along") {
  REQUIRE(enroll(1));
  auto former = engines.at(1);
  to_sessions.close();
  auto left = sim.start<void>(former, unregister_engine{});
  sim.run();
  engines.erase(1);
  REQUIRE(enroll(1)); // By an actor of its own.
  to_sessions.open();
  sim.run();
  CHECK(left.get());
  CHECK(put(1, "r", make_prompt(1, 1)));
  SUBCASE("when it leaves late") {}
  SUBCASE("nor does it take the place of the later one") {
    CHECK(failed_with(sim.ask(former, registration()), errc::not_found));
    CHECK(put(1, "r2", make_prompt(2, 1)));
    CHECK(sim.ask(former, unregister_engine{}));
    CHECK(put(1, "r3", make_prompt(3, 1)));
  }
  CHECK(session_counts().layouts == 1);
  CHECK(tell<void>(1, unregister_engine{}));
  CHECK(session_counts().layouts == 0);
  caf::anon_send_exit(former, caf::exit_reason::user_shutdown);
}

// -- equal transfers that overlap -------------------------------------------------------

TEST_CASE_FIXTURE(engine_fixture, "equal stores are not published before each is committed") {
  REQUIRE(enroll(1));
  REQUIRE(enroll(2));
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(2, "w", {tokens.begin(), tokens.begin() + chunk_tokens}));
  auto what = range("r", tokens, 0, 2);
  auto first = prepare(1, what);
  REQUIRE(first.slots.size() == 1);
  CHECK(first.slots[0].index == 1);
  REQUIRE(ask(clear_objects{true}));
  auto second = prepare(1, what);
  REQUIRE(second.slots.size() == 1);
  CHECK(second.slots[0].index == 0);
  // Which of them was written is not known.
  CHECK_FALSE(commit(1, what));
  CHECK(look_up("l", tokens) == 0);
  CHECK(leases() == 2);
  CHECK(commit(1, what));
  CHECK(look_up("l", tokens) == 2);
  CHECK_FALSE(commit(1, what));
  end("l");
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(engine_fixture, "a late store's slots stay its own while an equal one ends") {
  REQUIRE(enroll(1));
  auto what = range("r", make_prompt(1, 1), 0, 1);
  REQUIRE(prepare(1, what).slots.size() == 1);
  pass(61s);
  REQUIRE(status().expired_leases == 1);
  REQUIRE(prepare(1, what).slots.size() == 1);
  CHECK_FALSE(commit(1, what));
  CHECK(status().expired_leases == 1);
  CHECK(commit(1, what));
  CHECK(status().expired_leases == 0);
  CHECK(leases() == 0);
  auto counts = *tell<engine_status>(1, get_engine_status{});
  CHECK(counts.late_commits == 1);
  CHECK(counts.handed_out_bytes == 0);
  CHECK(counts.quarantined_bytes == 0);
}

TEST_CASE_FIXTURE(engine_fixture, "equal retrieves of other objects keep theirs to the last") {
  REQUIRE(enroll(1));
  REQUIRE(enroll(2));
  auto tokens = make_prompt(1, 2);
  auto what = range("r", tokens, 0, 2);
  for (auto i = 0; i < 2; ++i) {
    REQUIRE(put(2, "w", tokens));
    REQUIRE(look_up("r", tokens) == 2);
    REQUIRE(get(1, what));
    REQUIRE(ask(clear_objects{true}));
  }
  REQUIRE(leases() == 4);
  CHECK(tell<void>(1, commit_retrieve{what}));
  CHECK(leases() == 4);
  CHECK(tell<void>(1, commit_retrieve{what}));
  CHECK(leases() == 0);
}

// -- how much one instance may hold -----------------------------------------------------

TEST_CASE_FIXTURE(engine_fixture, "beyond what an instance may hold it is given nothing") {
  REQUIRE(enroll(2));
  auto tokens = make_prompt(1, 3);
  REQUIRE(put(2, "w", tokens));
  engine_setup.max_handed_out_bytes = 2 * page;
  REQUIRE(enroll(1));
  CHECK(prepare(1, range("w2", make_prompt(2, 3), 0, 3)).how == transfer::inline_data);
  CHECK(leases() == 0);
  REQUIRE(look_up("r", tokens) == 3);
  CHECK_FALSE(get(1, range("r", tokens, 0, 3)));
  CHECK(leases() == 0); // The retrieve used its tickets up, and with them the lookup's leases.
  auto counts = *tell<engine_status>(1, get_engine_status{});
  CHECK(counts.over_limit == 2);
  CHECK(counts.retrieves_failed == 1);
  CHECK(counts.handed_out_bytes == 0);
  REQUIRE(look_up("r", tokens) == 3);
  CHECK(get(1, range("r", tokens, 0, 2)));
  CHECK(prepare(1, range("w3", make_prompt(3, 1), 0, 1)).how == transfer::inline_data);
  CHECK(tell<void>(1, commit_retrieve{range("r", tokens, 0, 2)}));
  CHECK(prepare(1, range("w3", make_prompt(3, 1), 0, 1)).how == transfer::shared);
}

TEST_CASE_FIXTURE(engine_fixture, "what is on its way counts as held") {
  REQUIRE(enroll(2));
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(2, "w", tokens));
  engine_setup.max_handed_out_bytes = 3 * page;
  REQUIRE(enroll(1));
  REQUIRE(look_up("r", tokens) == 2);
  auto first
    = sim.start<store_plan>(engines.at(1), prepare_store{range("w2", make_prompt(2, 2), 0, 2)});
  auto second
    = sim.start<retrieve_plan>(engines.at(1), prepare_retrieve{range("r", tokens, 0, 2)});
  sim.run();
  CHECK(first.get()->how == transfer::shared);
  CHECK_FALSE(second.get()->success);
  CHECK(tell<engine_status>(1, get_engine_status{})->handed_out_bytes == 2 * page);
  // What was not given does not count.
  CHECK(commit(1, range("w2", make_prompt(2, 2), 0, 2)));
  CHECK(prepare(1, range("w3", make_prompt(2, 3), 0, 3)).slots.size() == 1);
  CHECK(prepare(1, range("w4", make_prompt(4, 2), 0, 2)).slots.size() == 2);
}

TEST_CASE("a retrieve that fails half-way holds nothing") {
  size_t failed = 0;
  for (auto steps = 0; steps < 12; ++steps) {
    engine_fixture node;
    REQUIRE(node.enroll(1));
    REQUIRE(node.enroll(2));
    auto tokens = make_prompt(1, 2);
    REQUIRE(node.put(2, "w", tokens));
    REQUIRE(node.look_up("r", tokens) == 2);
    // It is not known whether it maps the pool: it will get slots and bytes, a hold for each.
    auto plan = node.sim.start<retrieve_plan>(node.engines.at(1),
                                              prepare_retrieve{node.range("r", tokens, 0, 2)});
    for (auto i = 0; i < steps; ++i)
      node.sim.step();
    auto cleared = node.start<void>(clear_objects{true});
    node.sim.run();
    CHECK(cleared.get());
    REQUIRE(plan.get());
    if (plan.get()->success)
      continue;
    ++failed;
    auto counts = *node.tell<engine_status>(1, get_engine_status{});
    CHECK(counts.handed_out_bytes == 0);
    CHECK(counts.pending_reads == 0);
    CHECK(counts.retrieves_failed == 1);
    CHECK(node.leases() == 0);
  }
  CHECK(failed > 1);
}

TEST_SUITE_END();
