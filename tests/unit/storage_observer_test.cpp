#include "support/chunk_fixture.hpp"

#include <doctest/doctest.h>

#include <set>

/// Who observes a storage manager knows what is readable.

using namespace kvasir;
using namespace kvasir::test;

namespace {

using told_t = std::vector<std::pair<std::string, bool>>;

constexpr bool stored = true;
constexpr bool gone = false;

struct observed_fixture {
  observed_fixture() : observed_fixture(16) {}
  explicit observed_fixture(uint64_t pages)
    : fix({.pages = pages,
           .options = {page, page, page, 8, pages * page, pages * page},
           .changes = &changes}) {}

  /// What was told since the last call, without the prompt's NUL.
  told_t told() {
    fix.sim.run();
    told_t result;
    for (auto& change : std::exchange(changes, {}))
      result.emplace_back(change.key.bytes.substr(1), change.stored);
    return result;
  }

  std::vector<object_change> changes;
  chunk_fixture fix;
};

} // namespace

TEST_CASE_FIXTURE(observed_fixture, "an observer is told what was stored, in order") {
  auto staged = fix.stage(1, "a", 0, 3);
  CHECK(told().empty());
  auto writes = chunk_fixture::writes_of(staged);
  REQUIRE(fix.ask<chunks_finished>(finish_chunks{{writes[2], writes[0]}, 0, {}}));
  CHECK(told() == told_t{{"a#2", stored}, {"a#0", stored}});
  REQUIRE(fix.ask(expire_writes{{writes[1].id}}));
  REQUIRE(fix.ask<chunks_finished>(finish_chunks{{writes[1]}, 0, {}}));
  CHECK(told().empty());
}

TEST_CASE_FIXTURE(observed_fixture, "values of lm:// are none of an observer's business") {
  REQUIRE(fix.store(1));
  REQUIRE(fix.store(1));
  REQUIRE(fix.ask(remove_object{key(1)}));
  REQUIRE(fix.store(2));
  REQUIRE(fix.ask(clear_objects{}));
  CHECK(told().empty());
}

TEST_CASE_FIXTURE(observed_fixture, "an observer is told of each way in which a chunk goes") {
  REQUIRE(fix.store_prompt("a", 0, 2) == 2);
  told();
  SUBCASE("removed, by request, while it is held") {
    auto held = fix.acquire_all(1, "a", 0, 1);
    REQUIRE(fix.ask(remove_object{chunk_key("a", 0)}));
    CHECK(told() == told_t{{"a#0", gone}});
    REQUIRE(fix.ask(end_owner{1}));
    CHECK(told().empty());
  }
  SUBCASE("dropped as corrupt, once") {
    auto held = fix.acquire_all(1, "a", 0, 1);
    auto again = fix.acquire_all(1, "a", 0, 1);
    REQUIRE(fix.ask(release_read{held->leases[0].id, true}));
    REQUIRE(fix.ask(release_read{again->leases[0].id, true}));
    CHECK(told() == told_t{{"a#0", gone}});
  }
  SUBCASE("evicted, from the end of its prompt") {
    REQUIRE(fix.stage(1, "b", 0, 16)[15].state == chunk_state::reserved);
    CHECK(told() == told_t{{"a#1", gone}, {"a#0", gone}});
  }
  SUBCASE("replaced") {
    auto other = fix.ask<write_lease>(reserve_write{1, chunk_key("a", 0), {}, page});
    REQUIRE(fix.ask(finish_write{other->id, 1}));
    CHECK(told() == told_t{{"a#0", gone}, {"a#0", stored}});
  }
  SUBCASE("cleared, but for what is held") {
    REQUIRE(fix.look_up(1, "a", 1).chunks == 1);
    REQUIRE(fix.ask(clear_objects{false}));
    CHECK(told() == told_t{{"a#1", gone}});
  }
}

TEST_CASE("what is stored anew before its former self was swept is told last") {
  observed_fixture many{2500};
  auto& fix = many.fix;
  REQUIRE(fix.store_prompt("a", 0, 2500) == 2500);
  fix.start(clear_objects{});
  auto anew = fix.start<chunk_reservations>(chunk_fixture::claim_of(1, "a", 2400, 2401));
  REQUIRE(fix.sim.step()); // The clear,
  REQUIRE(fix.sim.step()); // and the claim.
  REQUIRE(anew.get());
  auto done = fix.start<chunks_finished>(
    finish_chunks{chunk_fixture::writes_of(anew.get()->chunks), 0, {}});
  REQUIRE(fix.sim.step()); // The first slice.
  CHECK(done.pending());
  CHECK(fix.tier().usage().used_bytes > 1000 * page);
  std::set<std::string> known;
  for (auto& [name, here] : many.told())
    here ? (void)known.insert(name) : (void)known.erase(name);
  REQUIRE(done.get());
  CHECK(known == std::set<std::string>{"a#2400"});
  CHECK(fix.tier().present(chunk_key("a", 2400)));
}

TEST_CASE("the end of thousands of chunks is told in slices, each chunk once") {
  observed_fixture many{2500};
  REQUIRE(many.fix.store_prompt("a", 0, 2500) == 2500);
  CHECK(many.told().size() == 2500);
  many.fix.start(clear_objects{});
  std::set<std::string> ended;
  size_t most = 0;
  while (many.fix.sim.step()) {
    auto before = ended.size();
    for (auto& change : std::exchange(many.changes, {})) {
      CHECK_FALSE(change.stored);
      CHECK(ended.insert(change.key.bytes).second);
    }
    most = std::max(most, ended.size() - before);
  }
  CHECK(ended.size() == 2500);
  CHECK(most == memory_tier::slice_objects);
}
