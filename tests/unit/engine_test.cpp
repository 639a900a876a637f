#include "support/engine_fixture.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::test;

namespace {

inline_tensor fitting() {
  auto dims = page_layout().shape();
  return {tensor_dtype::float16, {dims.dims().begin(), dims.dims().end()}};
}

} // namespace

TEST_SUITE_BEGIN("engine");

TEST_CASE_FIXTURE(engine_fixture, "what was written and committed is found, and nothing else") {
  REQUIRE(enroll(1));
  auto tokens = make_prompt(1, 3);
  auto what = range("r1", tokens, 0, 3);
  auto plan = prepare(1, what);
  CHECK(plan.how == transfer::shared);
  CHECK(plan.slots.size() == 3);
  CHECK(look_up("r2", tokens) == 0);
  CHECK(commit(1, what));
  CHECK(look_up("r2", tokens) == 3);
  CHECK(look_up("r3", make_prompt(2, 3)) == 0);
  CHECK(get(1, range("r2", tokens, 0, 3)));
  CHECK(tell<void>(1, commit_retrieve{range("r2", tokens, 0, 3)}));
  end("r2");
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(engine_fixture, "chunks that are there or on their way are left out") {
  REQUIRE(enroll(1));
  auto tokens = make_prompt(1, 4);
  REQUIRE(put(1, "r1", {tokens.begin(), tokens.begin() + chunk_tokens}));
  auto second = prepare(1, range("r2", tokens, 1, 2));
  REQUIRE(second.slots.size() == 1);
  auto rest = prepare(1, range("r3", tokens, 0, 4));
  REQUIRE(rest.slots.size() == 2);
  CHECK(rest.slots[0].index == 2);
  CHECK(rest.slots[1].index == 3);
  // Not all that was asked for is resident: the second is still on its way.
  CHECK_FALSE(commit(1, range("r3", tokens, 0, 4)));
  CHECK(commit(1, range("r2", tokens, 1, 2)));
  CHECK(look_up("r4", tokens) == 4);
  CHECK(prepare(1, range("r5", tokens, 0, 4)).how == transfer::none);
}

TEST_CASE_FIXTURE(engine_fixture, "a commit without prepare is false, a second one too") {
  REQUIRE(enroll(1));
  auto what = range("r1", make_prompt(1, 1), 0, 1);
  CHECK_FALSE(commit(1, what));
  prepare(1, what);
  CHECK(commit(1, what));
  CHECK_FALSE(commit(1, what));
}

TEST_CASE("out of memory is said") {
  engine_fixture node{4};
  REQUIRE(node.enroll(1));
  auto held = make_prompt(1, 3);
  REQUIRE(node.put(1, "r1", held));
  REQUIRE(node.look_up("r2", held) == 3);
  // One slot for two chunks: the first of them, and the commit is false.
  auto what = node.range("r3", make_prompt(2, 2), 0, 2);
  auto plan = node.prepare(1, what);
  REQUIRE(plan.slots.size() == 1);
  CHECK(plan.slots[0].index == 0);
  CHECK_FALSE(node.commit(1, what));
  REQUIRE(node.look_up("r4", make_prompt(2, 1)) == 1);
  // None at all: not an empty list, which would look like success.
  CHECK(node.prepare(1, node.range("r5", make_prompt(3, 1), 0, 1)).how
        == transfer::inline_data);
}

TEST_CASE("an expired reservation is never published, and its slot is nobody else's") {
  engine_fixture node{4};
  REQUIRE(node.enroll(1));
  REQUIRE(node.enroll(2));
  auto what = node.range("r1", make_prompt(1, 1), 0, 1);
  auto first = node.prepare(1, what);
  REQUIRE(first.slots.size() == 1);
  REQUIRE(node.tell<void>(1, engine_ping{}));
  for (auto i = 0; i < 7; ++i) {
    node.pass(10s);
    REQUIRE(node.tell<void>(1, engine_ping{}));
  }
  CHECK(node.status().expired_leases == 1);
  // Others may write that chunk, elsewhere; the first one's slot stays out of use.
  auto others = node.prepare(2, node.range("r2", make_prompt(2, 4), 0, 4));
  CHECK(others.slots.size() == 3);
  for (auto& other : others.slots)
    CHECK(other.where.offset_bytes != first.slots[0].where.offset_bytes);
  CHECK_FALSE(node.commit(1, what));
  CHECK(node.status().expired_leases == 0);
  CHECK(node.look_up("r3", make_prompt(1, 1)) == 0);
  CHECK(node.prepare(2, node.range("r4", make_prompt(1, 1), 0, 1)).slots.size() == 1);
}

TEST_CASE_FIXTURE(engine_fixture, "equal retrieves that overlap leave nothing behind") {
  REQUIRE(enroll(1));
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(1, "r1", tokens));
  auto what = range("r2", tokens, 0, 2);
  REQUIRE(look_up("r2", tokens, 2) == 2);
  CHECK(get(1, what));
  CHECK(get(1, what));
  CHECK_FALSE(get(1, what)); // The lookup announced two.
  for (auto i = 0; i < 3; ++i)
    CHECK(tell<void>(1, commit_retrieve{what}));
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(engine_fixture, "a retrieve does not ride on another request's lookup") {
  REQUIRE(enroll(1));
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(1, "r1", tokens));
  REQUIRE(look_up("r2", tokens) == 2);
  CHECK_FALSE(get(1, range("r3", tokens, 0, 2)));
  auto other = make_prompt(2, 2);
  REQUIRE(put(1, "r4", other));
  CHECK_FALSE(get(1, range("r2", other, 0, 2))); // Another prompt under the same id.
  CHECK(get(1, range("r2", tokens, 0, 2)));
}

TEST_CASE_FIXTURE(engine_fixture, "inline chunks of another shape or dtype are left out") {
  REQUIRE(enroll(1));
  auto tokens = make_prompt(1, 3);
  auto what = range("r1", tokens, 0, 3);
  auto wide = fitting();
  wide.dtype = tensor_dtype::float32;
  auto plan = tell<inline_store_plan>(1, begin_inline_store{what, {fitting(), wide}});
  REQUIRE(plan);
  REQUIRE(plan->slots.size() == 1);
  auto done = tell<store_outcome>(
    1, finish_inline_store{plan->transfer_id, {{plan->slots[0].lease, 1}}});
  REQUIRE(done);
  CHECK_FALSE(done->stored);
  CHECK(look_up("r2", tokens) == 1);
  end("r2");
  CHECK(leases() == 0);
  auto counters = tell<engine_status>(1, get_engine_status{});
  CHECK(counters->skipped_shape == 1);
  CHECK(counters->skipped_missing == 1);
  // The whole list at once afterwards.
  plan
    = tell<inline_store_plan>(1, begin_inline_store{what, {fitting(), fitting(), fitting()}});
  REQUIRE(plan->slots.size() == 2);
  done = tell<store_outcome>(
    1, finish_inline_store{plan->transfer_id,
                           {{plan->slots[0].lease, 2}, {plan->slots[1].lease, 3}}});
  CHECK(done->stored);
}

TEST_CASE_FIXTURE(engine_fixture, "data that comes inline takes the place of reserved slots") {
  REQUIRE(enroll(1));
  auto what = range("r1", make_prompt(1, 1), 0, 1);
  REQUIRE(prepare(1, what).slots.size() == 1);
  auto plan = tell<inline_store_plan>(1, begin_inline_store{what, {fitting()}});
  REQUIRE(plan->slots.size() == 1);
  CHECK(
    tell<store_outcome>(1, finish_inline_store{plan->transfer_id, {{plan->slots[0].lease, 1}}})
      ->stored);
  CHECK(leases() == 0);
  // From now on it is served inline.
  CHECK(prepare(1, range("r2", make_prompt(2, 1), 0, 1)).how == transfer::inline_data);
}

TEST_CASE("a copy under way outlives its engine's registration") {
  engine_fixture node{1};
  REQUIRE(node.enroll(1));
  auto what = node.range("r1", make_prompt(1, 1), 0, 1);
  auto plan = node.tell<inline_store_plan>(1, begin_inline_store{what, {fitting()}});
  REQUIRE(plan->slots.size() == 1);
  CHECK(node.tell<void>(1, unregister_engine{}));
  REQUIRE(node.enroll(2));
  CHECK(node.prepare(2, node.range("r2", make_prompt(2, 1), 0, 1)).slots.empty());
  CHECK(node.tell<store_outcome>(1, finish_inline_store{plan->transfer_id, {}}));
  CHECK(node.prepare(2, node.range("r3", make_prompt(3, 1), 0, 1)).slots.size() == 1);
}

TEST_CASE_FIXTURE(engine_fixture,
                  "a silent instance is reaped; what it holds stays out of use") {
  REQUIRE(enroll(1));
  REQUIRE(tell<void>(1, engine_ping{}));
  auto tokens = make_prompt(1, 1);
  auto what = range("r1", tokens, 0, 1);
  REQUIRE(prepare(1, what).slots.size() == 1);
  pass(31s);
  auto seen = look(1);
  CHECK_FALSE(seen.registered);
  CHECK(seen.wants_fence);
  CHECK(look_up("r2", tokens) == 0);
  CHECK(status().write_leases + status().expired_leases > 0);
  SUBCASE("it comes back: its commit is late, and it goes on") {
    CHECK_FALSE(commit(1, what));
    CHECK(look(1).registered);
    CHECK(put(1, "r3", tokens));
  }
  SUBCASE("its process is gone: all is free") {
    caf::anon_send(engines.at(1), fence_engine{});
    sim.run();
    CHECK(leases() == 0);
    CHECK(status().expired_leases == 0);
    CHECK_FALSE(look(1).wants_fence);
  }
}

TEST_CASE_FIXTURE(engine_fixture,
                  "an instance that never pinged is not reaped for its silence") {
  REQUIRE(enroll(1));
  pass(600s);
  CHECK(look(1).registered);
  caf::anon_send(engines.at(1), engine_disconnected{});
  sim.run();
  CHECK_FALSE(look(1).registered);
}

TEST_CASE_FIXTURE(engine_fixture, "unregistering ends what an instance holds, unpublished") {
  REQUIRE(enroll(1));
  auto tokens = make_prompt(1, 2);
  REQUIRE(prepare(1, range("r1", tokens, 0, 2)).slots.size() == 2);
  CHECK(tell<void>(1, unregister_engine{}));
  CHECK(leases() == 0);
  REQUIRE(enroll(2));
  CHECK(look_up("r2", tokens) == 0);
  CHECK(tell<store_plan>(1, prepare_store{range("r3", tokens, 0, 1)}).error()
        == errc::not_found);
}

TEST_CASE_FIXTURE(engine_fixture,
                  "one layout per model: another is refused while it is in use") {
  REQUIRE(enroll(1));
  CHECK(enroll(2, page_layout(tensor_dtype::float32)).error() == errc::layout_mismatch);
  CHECK(put(1, "r1", make_prompt(1, 1)));
  CHECK(tell<void>(1, unregister_engine{}));
  CHECK(enroll(2, page_layout(tensor_dtype::float32)));
  CHECK(look_up("r2", make_prompt(1, 1)) == 0); // Its bytes look otherwise.
  CHECK(enroll(1).error() == errc::layout_mismatch);
}

TEST_CASE_FIXTURE(engine_fixture,
                  "an instance that lost its layout does not store under another") {
  REQUIRE(enroll(1));
  REQUIRE(tell<void>(1, engine_ping{}));
  pass(31s);
  REQUIRE_FALSE(look(1).registered);
  REQUIRE(enroll(2, page_layout(tensor_dtype::float32)));
  CHECK(tell<store_plan>(1, prepare_store{range("r1", make_prompt(1, 1), 0, 1)}).error()
        == errc::layout_mismatch);
  CHECK_FALSE(look(1).registered);
}

TEST_CASE_FIXTURE(engine_fixture, "slots that are out forbid another layout of the instance") {
  REQUIRE(enroll(1));
  REQUIRE(prepare(1, range("r1", make_prompt(1, 1), 0, 1)).slots.size() == 1);
  CHECK(enroll(1, page_layout(tensor_dtype::float32)).error() == errc::layout_mismatch);
}

TEST_SUITE_END();
