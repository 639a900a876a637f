#include "support/storage_fixture.hpp"

#include <doctest/doctest.h>

/// What happens when there is no room: who waits, for what, and how each wait ends.

using namespace kvasir;
using namespace kvasir::test;

namespace {

using setup = storage_fixture::setup;

reserve_write want(owner_id owner, uint64_t number, uint64_t pages) {
  return {owner, key(number), {}, pages * page};
}

acquire_read want_read(owner_id owner, uint64_t number) {
  return {owner, key(number)};
}

} // namespace

TEST_CASE_FIXTURE(storage_fixture, "complete objects give way to a new one, oldest first") {
  for (uint64_t i = 0; i < 16; ++i)
    REQUIRE(store(i));
  CHECK(status().evicted_objects == 0);
  REQUIRE(store(16, 2));
  CHECK_FALSE(exists(0));
  CHECK_FALSE(exists(1));
  CHECK(exists(2));
  auto now = status();
  CHECK(now.evicted_objects == 2);
  CHECK(now.evicted_bytes == 2 * page);
  CHECK(now.objects == 15);
}

TEST_CASE_FIXTURE(storage_fixture, "a write waits for room that others have reserved") {
  REQUIRE(reserve(1, 1, 8));
  auto second = reserve(2, 2, 8);
  REQUIRE(second);
  auto waits = start<write_lease>(want(3, 3, 4));
  sim.run();
  CHECK(waits.pending());
  CHECK(status().waiting == 1);
  CHECK(ask<pressure>(check_pressure{})->requests_wait);
  SUBCASE("an abort makes it") {
    REQUIRE(ask(abort_write{second->id}));
  }
  SUBCASE("a finished object can be evicted for it") {
    REQUIRE(ask(finish_write{second->id, 0}));
    CHECK_FALSE(exists(2));
  }
  SUBCASE("the end of an owner makes it") {
    REQUIRE(ask(end_owner{1}));
  }
  REQUIRE(waits.get());
  CHECK(waits.count() == 1);
  CHECK(status().waiting == 0);
  CHECK_FALSE(ask<pressure>(check_pressure{})->requests_wait);
}

TEST_CASE_FIXTURE(storage_fixture, "a write waits for room that a reader holds") {
  REQUIRE(store(1, 8));
  REQUIRE(store(2, 8));
  auto one = acquire(1, 1);
  auto other = acquire(1, 2);
  REQUIRE(one);
  REQUIRE(other);
  auto waits = start<write_lease>(want(3, 3, 1));
  sim.run();
  CHECK(waits.pending());
  CHECK(exists(1));
  REQUIRE(ask(release_read{other->id, false}));
  REQUIRE(waits.get());
  CHECK(waits.get()->where.offset_bytes == other->where.offset_bytes);
  CHECK(exists(1));
}

TEST_CASE_FIXTURE(storage_fixture, "who waits is answered once when its owner ends") {
  REQUIRE(reserve(1, 1, 8));
  REQUIRE(reserve(2, 2, 8));
  auto mine = start<write_lease>(want(3, 3, 4));
  auto also_mine = start<write_lease>(want(3, 4, 4));
  auto other = start<write_lease>(want(4, 5, 4));
  sim.run();
  REQUIRE(ask(end_owner{3}));
  CHECK(failed_with(mine.get(), errc::not_reserved));
  CHECK(failed_with(also_mine.get(), errc::not_reserved));
  CHECK(other.pending());
  REQUIRE(ask(end_owner{1}));
  REQUIRE(ask(end_owner{2}));
  REQUIRE(other.get());
  CHECK(mine.count() == 1);
  CHECK(also_mine.count() == 1);
  CHECK(other.count() == 1);
  CHECK(status().write_leases == 1);
}

TEST_CASE_FIXTURE(storage_fixture, "nobody overtakes a write that waits, however small it is") {
  REQUIRE(reserve(1, 1, 7));
  auto second = reserve(2, 2, 7);
  REQUIRE(second);
  auto large = start<write_lease>(want(3, 3, 4));
  auto small = start<write_lease>(want(4, 4, 1)); // There is room for this one.
  sim.run();
  CHECK(large.pending());
  CHECK(small.pending());
  REQUIRE(ask(abort_write{second->id}));
  CHECK(large.get());
  CHECK(small.get());
}

TEST_CASE_FIXTURE(storage_fixture, "a full queue answers busy, and says so in its counter") {
  REQUIRE(reserve(1, 1, 8));
  REQUIRE(reserve(1, 2, 8));
  std::vector<awaited<write_lease>> queue;
  for (uint64_t i = 0; i < 8; ++i)
    queue.push_back(start<write_lease>(want(2, i, 1)));
  CHECK(failed_with(ask<write_lease>(want(2, 9, 1)), errc::busy));
  auto now = status();
  CHECK(now.waiting == 8);
  CHECK(now.rejected_busy == 1);
  REQUIRE(ask(end_owner{1}));
  for (auto& waiting : queue)
    CHECK(waiting.get());
  CHECK(status().waiting == 0);
}

TEST_CASE("claims have a budget of their own: reservations cannot empty the cache") {
  storage_fixture fix{setup{.options = {4 * page, 8 * page, 16 * page, 8}}};
  for (uint64_t i = 0; i < 16; ++i)
    REQUIRE(fix.store(i));
  auto first = fix.reserve(1, 100, 4);
  REQUIRE(first);
  REQUIRE(fix.reserve(2, 101, 4));
  auto waits = fix.start<write_lease>(want(3, 102, 1));
  fix.sim.run();
  CHECK(waits.pending());
  CHECK(fix.status().objects == 8);
  CHECK(fix.status().claimed_bytes == 8 * page);
  REQUIRE(fix.ask(finish_write{first->id, 0}));
  CHECK(waits.get());
  CHECK(fix.status().claimed_bytes == 5 * page);
}

TEST_CASE("one-byte claims use up the budget page by page") {
  storage_fixture fix{setup{.options = {4 * page, 8 * page, 16 * page, 8}}};
  for (uint64_t i = 0; i < 8; ++i)
    REQUIRE(fix.ask<write_lease>(reserve_write{1, key(i), {}, 1}));
  auto waits = fix.start<write_lease>(reserve_write{1, key(9), {}, 1});
  fix.sim.run();
  CHECK(waits.pending());
}

TEST_CASE("holds have a budget: stalled readers cannot stop eviction") {
  storage_fixture fix{setup{.options = {4 * page, 8 * page, 8 * page, 8}}};
  for (uint64_t i = 0; i < 4; ++i)
    REQUIRE(fix.store(i, 4));
  auto first = fix.acquire(1, 0);
  REQUIRE(first);
  REQUIRE(fix.acquire(2, 1));
  auto waits = fix.start<read_lease>(want_read(3, 2));
  fix.sim.run();
  CHECK(waits.pending());
  CHECK(fix.acquire(4, 1));                                // Held already: costs nothing.
  CHECK(failed_with(fix.acquire(5, 99), errc::not_found)); // A miss waits for nobody.
  REQUIRE(fix.store(10, 4));                               // The others can be evicted.
  REQUIRE(fix.ask(release_read{first->id, false}));
  REQUIRE(!waits.pending());
  CHECK(waits.count() == 1);
}

TEST_CASE("small readers do not starve a large one that waits") {
  storage_fixture fix{setup{.options = {4 * page, 8 * page, 8 * page, 8}}};
  REQUIRE(fix.store(0, 4));
  REQUIRE(fix.store(1, 4));
  for (uint64_t i = 2; i < 6; ++i)
    REQUIRE(fix.store(i, 1));
  auto a = fix.acquire(1, 0);
  auto b = fix.acquire(2, 2);
  REQUIRE(a);
  REQUIRE(b);
  auto large = fix.start<read_lease>(want_read(3, 1));
  fix.sim.run();
  CHECK(large.pending());
  auto small = fix.start<read_lease>(want_read(4, 3)); // Would fit, and keep the other out.
  fix.sim.run();
  CHECK(small.pending());
  REQUIRE(fix.ask(release_read{a->id, false}));
  CHECK(large.get());
  CHECK(small.get());
}

TEST_CASE("a read that waits is a miss once its object is gone, or ends with its owner") {
  storage_fixture fix{setup{.options = {4 * page, 8 * page, 4 * page, 8}}};
  REQUIRE(fix.store(0, 4));
  REQUIRE(fix.store(1, 4));
  REQUIRE(fix.acquire(1, 0));
  auto waits = fix.start<read_lease>(want_read(2, 1));
  fix.sim.run();
  REQUIRE(waits.pending());
  SUBCASE("removed") {
    REQUIRE(fix.ask(remove_object{key(1)}));
    CHECK(failed_with(waits.get(), errc::not_found));
  }
  SUBCASE("cleared") {
    REQUIRE(fix.ask(clear_objects{}));
    CHECK(failed_with(waits.get(), errc::not_found));
  }
  SUBCASE("its owner ends") {
    REQUIRE(fix.ask(end_owner{2}));
    CHECK(failed_with(waits.get(), errc::not_reserved));
  }
  CHECK(waits.count() == 1);
  CHECK(fix.status().waiting == 0);
  CHECK(fix.status().read_leases == 1);
}

TEST_CASE("however many wait, an event that ends all waits ends all of them") {
  storage_fixture fix{setup{.options = {4 * page, 8 * page, 4 * page, 1000}}};
  REQUIRE(fix.store(0, 4));
  REQUIRE(fix.store(1, 4));
  auto held = fix.acquire(1, 0);
  REQUIRE(held);
  std::vector<awaited<read_lease>> readers;
  for (uint64_t i = 0; i < 500; ++i)
    readers.push_back(fix.start<read_lease>(want_read(2 + i, 1)));
  fix.sim.run();
  CHECK(fix.status().waiting == 500);
  SUBCASE("all become misses") {
    REQUIRE(fix.ask(remove_object{key(1)}));
  }
  SUBCASE("all become holds") {
    REQUIRE(fix.ask(release_read{held->id, false}));
  }
  for (auto& reader : readers)
    CHECK(reader.count() == 1);
  CHECK(fix.status().waiting == 0);
}

TEST_CASE("while the pool grows nothing is evicted: writes wait for the next step") {
  storage_fixture fix{setup{.usable_pages = 4}};
  for (uint64_t i = 0; i < 4; ++i)
    REQUIRE(fix.store(i));
  auto waits = fix.start<write_lease>(want(1, 9, 2));
  fix.sim.run();
  CHECK(waits.pending());
  fix.grow(8, false);
  REQUIRE(waits.get());
  CHECK(waits.get()->where.offset_bytes >= 4 * page);
  for (uint64_t i = 0; i < 4; ++i)
    CHECK(fix.exists(i));
  CHECK(fix.status().usable_bytes == 8 * page);
}

TEST_CASE("before the first step every write waits") {
  storage_fixture fix{setup{.usable_pages = 0}};
  auto waits = fix.start<write_lease>(want(1, 1, 1));
  fix.sim.run();
  CHECK(waits.pending());
  fix.grow(1, false);
  CHECK(waits.get());
}

TEST_CASE("a pool that stays smaller than planned evicts like any other") {
  storage_fixture fix{setup{.usable_pages = 4}};
  for (uint64_t i = 0; i < 4; ++i)
    REQUIRE(fix.store(i));
  auto waits = fix.start<write_lease>(want(1, 9, 2));
  fix.sim.run();
  fix.grow(4, true);
  REQUIRE(waits.get());
  CHECK(fix.status().evicted_objects == 2);
}

TEST_CASE(
  "an object larger than what a stunted pool has is refused and costs no other object") {
  storage_fixture fix{setup{.usable_pages = 4}};
  for (uint64_t i = 0; i < 4; ++i)
    REQUIRE(fix.store(i));
  auto early = fix.start<write_lease>(want(1, 8, 5)); // The pool may still grow.
  fix.sim.run();
  CHECK(early.pending());
  fix.grow(4, true);
  CHECK(failed_with(early.get(), errc::too_large));
  CHECK(failed_with(fix.reserve(1, 9, 8), errc::too_large));
  CHECK(fix.status().objects == 4);
  CHECK(fix.status().rejected_too_large == 2);
  REQUIRE(fix.acquire(1, 0)); // Nor does it wait for a reader who cannot help.
  CHECK(failed_with(fix.reserve(1, 9, 8), errc::too_large));
}

TEST_CASE_FIXTURE(storage_fixture,
                  "a pool report that is late or repeated takes nothing back") {
  grow(8, true);
  CHECK(status().usable_bytes == 16 * page);
  CHECK(store(1, 8));
  CHECK(store(2, 8));
}

TEST_CASE("requests that wait are answered when the manager is told to end") {
  storage_fixture fix{setup{.options = {8 * page, 16 * page, 8 * page, 8}}};
  REQUIRE(fix.store(1, 8));
  REQUIRE(fix.store(2, 8));
  REQUIRE(fix.acquire(1, 1));
  auto read = fix.start<read_lease>(want_read(2, 2));
  fix.sim.run();
  REQUIRE(fix.ask(remove_object{key(2)}));
  REQUIRE(fix.reserve(3, 3, 8));
  auto write = fix.start<write_lease>(want(4, 4, 8));
  fix.sim.run();
  REQUIRE(write.pending());
  caf::anon_send_exit(fix.manager(), caf::exit_reason::user_shutdown);
  fix.sim.run();
  CHECK(write.count() == 1);
  CHECK_FALSE(write.get());
  CHECK(read.count() == 1);
}
