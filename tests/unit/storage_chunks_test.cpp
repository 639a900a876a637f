#include "support/chunk_fixture.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::test;

namespace {

using states_t = std::vector<chunk_state>;
constexpr auto is_reserved = chunk_state::reserved;
constexpr auto is_resident = chunk_state::resident;
constexpr auto is_staged = chunk_state::staged;
constexpr auto no_room = chunk_state::no_room;
using numbers = std::vector<uint64_t>;

} // namespace

TEST_CASE_FIXTURE(chunk_fixture, "a chunk is resident once it is finished, not before") {
  auto staged = stage(1, "a", 0, 3);
  for (auto& chunk : staged)
    REQUIRE(chunk.state == is_reserved);
  CHECK(status().staged_bytes == 3 * page);
  CHECK(status().claimed_bytes == 0);
  CHECK(look_up(2, "a", 3).chunks == 0);
  auto done = ask<chunks_finished>(finish_chunks{
    {{staged[0].lease.id, 0xa}, {staged[2].lease.id, 0xc}}, 0, keys_of("a", 0, 4)});
  REQUIRE(done);
  CHECK(done->resident == std::vector<uint8_t>{1, 0, 1, 0});
  CHECK(done->holds.size() == 2);
  CHECK(done->holds[0].id == 0);
  CHECK(acquire_all(2, "a", 2, 3)->leases[0].checksum == 0xc);
  CHECK(acquire_all(2, "a", 2, 3)->leases[0].sealed);
  CHECK(states(1, "a", 0, 4) == states_t{is_resident, is_staged, is_resident, is_reserved});
  CHECK(status().staged_bytes == 2 * page);
  CHECK(status().chunks_stored == 2);
}

TEST_CASE_FIXTURE(chunk_fixture, "a chunk that is being written is not given to another") {
  auto first = stage(1, "a", 0, 2);
  CHECK(states(2, "a", 0, 3) == states_t{is_staged, is_staged, is_reserved});
  SUBCASE("until its writer ends") {
    REQUIRE(ask(end_owner{1}));
    CHECK(status().aborted_writes == 2);
  }
  SUBCASE("until its leases end") {
    REQUIRE(ask(end_leases{ids_of(first)}));
    CHECK(status().aborted_writes == 2);
  }
  SUBCASE("until they expire") {
    REQUIRE(ask(expire_writes{ids_of(first)}));
    CHECK(status().expired_leases == 2);
  }
  CHECK(states(2, "a", 0, 3) == states_t{is_reserved, is_reserved, is_staged});
}

TEST_CASE_FIXTURE(chunk_fixture, "one claim that names a chunk twice gets it once") {
  auto claim = claim_of(1, "a", 0, 1);
  claim.chunks.push_back(claim.chunks.front());
  auto result = ask<chunk_reservations>(claim);
  REQUIRE(result);
  CHECK(result->chunks[0].state == is_reserved);
  CHECK(result->chunks[1].state == is_staged);
}

TEST_CASE_FIXTURE(chunk_fixture,
                  "what expired publishes nothing, keeps its memory until told") {
  auto late = stage(1, "a", 0, 2);
  REQUIRE(ask(expire_writes{ids_of(late)}));
  CHECK(status().staged_bytes == 2 * page);
  CHECK(tier().usage().used_bytes == 2 * page);
  auto again = stage(2, "a", 0, 1);
  REQUIRE(again[0].state == is_reserved);
  CHECK(again[0].lease.where.offset_bytes != late[0].lease.where.offset_bytes);
  SUBCASE("a late finish ends it") {
    auto done = ask<chunks_finished>(finish_chunks{writes_of(late), 9, keys_of("a", 0, 2)});
    REQUIRE(done);
    CHECK(done->resident == std::vector<uint8_t>{0, 0});
    CHECK(done->holds[0].id == 0);
    CHECK(status().chunks_late == 2);
    CHECK(status().read_leases == 0);
  }
  SUBCASE("end_leases does") {
    REQUIRE(ask(end_leases{ids_of(late)}));
  }
  SUBCASE("the end of its owner does") {
    REQUIRE(ask(end_owner{1}));
  }
  auto now = status();
  CHECK(now.staged_bytes == page);
  CHECK(now.used_bytes == page);
  CHECK(now.expired_leases == 0);
  CHECK(now.write_leases == 1);
  CHECK(resident("a", 2).empty());
  // The other reservation of the key is as it was.
  REQUIRE(ask<chunks_finished>(finish_chunks{writes_of(again), 0, {}}));
  CHECK(resident("a", 2) == numbers{0});
}

TEST_CASE_FIXTURE(chunk_fixture, "only reservations of chunks expire, each once") {
  auto other = reserve(1, 5);
  auto chunk = stage(1, "a", 0, 1);
  REQUIRE(store(6));
  auto read = acquire(1, 6);
  REQUIRE(ask(expire_writes{{other->id, read->id, chunk[0].lease.id, chunk[0].lease.id, 77}}));
  CHECK(status().unknown_leases == 4);
  CHECK(status().expired_leases == 1);
  CHECK(ask(finish_write{other->id, 0}));
  CHECK(ask(release_read{read->id, false}));
}

TEST_CASE_FIXTURE(chunk_fixture, "leases of chunks and of values are not mixed up") {
  auto value = reserve(1, 5);
  auto chunk = stage(1, "a", 0, 1);
  CHECK(failed_with(ask(finish_write{chunk[0].lease.id, 0}), errc::not_reserved));
  CHECK(failed_with(ask(abort_write{chunk[0].lease.id}), errc::not_reserved));
  auto done = ask<chunks_finished>(finish_chunks{{{value->id, 0}}, 0, {key(5)}});
  REQUIRE(done);
  CHECK(done->resident == std::vector<uint8_t>{0});
  CHECK(status().write_leases == 2);
}

TEST_CASE_FIXTURE(chunk_fixture, "the first complete chunk of a key stays") {
  auto chunk = stage(1, "a", 0, 1);
  // The same key, complete meanwhile by other means.
  auto other = ask<write_lease>(reserve_write{2, chunk_key("a", 0), {}, page});
  REQUIRE(ask(finish_write{other->id, 0xf}));
  auto done = ask<chunks_finished>(finish_chunks{writes_of(chunk), 3, keys_of("a", 0, 1)});
  REQUIRE(done);
  CHECK(done->resident == std::vector<uint8_t>{1});
  CHECK(done->holds[0].id == 0);
  CHECK(acquire_all(2, "a", 0, 1)->leases[0].checksum == 0xf);
  auto now = status();
  CHECK(now.chunks_redundant == 1);
  CHECK(now.chunks_stored == 0);
  CHECK(now.used_bytes == page);
  CHECK(now.staged_bytes == 0);
}

TEST_CASE_FIXTURE(chunk_fixture, "a checksum may come later, from who holds the chunk for it") {
  auto chunk = stage(1, "a", 0, 2);
  auto done = ask<chunks_finished>(
    finish_chunks{{{chunk[0].lease.id, 0}, {99, 0}, {chunk[1].lease.id, 0}}, 5, {}});
  REQUIRE(done);
  REQUIRE(done->holds.size() == 3);
  CHECK(done->holds[0].where == chunk[0].lease.where);
  CHECK_FALSE(done->holds[0].sealed);
  CHECK(done->holds[1].id == 0);
  CHECK_FALSE(acquire_all(2, "a", 0, 1)->leases[0].sealed);
  CHECK(status().read_leases == 3);
  REQUIRE(ask(seal_chunks{{{done->holds[0].id, 0xab}, {done->holds[0].id, 0xff}, {0, 1}}}));
  auto sealed = acquire_all(2, "a", 0, 1);
  CHECK(sealed->leases[0].sealed);
  CHECK(sealed->leases[0].checksum == 0xab);
  REQUIRE(ask(end_owner{5})); // Who hashes may die: the chunk stays, without a checksum.
  CHECK_FALSE(acquire_all(2, "a", 1, 2)->leases[0].sealed);
}

TEST_CASE_FIXTURE(chunk_fixture, "an ordinary hold cannot change a checksum") {
  REQUIRE(store_prompt("a", 0, 1) == 1);
  auto read = acquire_all(2, "a", 0, 1);
  REQUIRE(ask(seal_chunks{{{read->leases[0].id, 0xbad}}}));
  CHECK(acquire_all(2, "a", 0, 1)->leases[0].checksum == 7);
}

TEST_CASE_FIXTURE(chunk_fixture, "a prefix is held up to the first gap, over all ranks") {
  REQUIRE(store_prompt("a", 0, 3) == 3);
  REQUIRE(store_prompt("a", 4, 6) == 2);
  auto held = look_up(1, "a", 6);
  CHECK(held.chunks == 3);
  CHECK(status().held_bytes == 3 * page);
  // Two ranks: chunk 0 = objects 0 and 1; of chunk 1 the second is... object 3, the gap.
  auto wide = ask<prefix_held>(hold_prefix{1, 2, keys_of("a", 0, 6)});
  REQUIRE(wide);
  CHECK(wide->chunks == 1);
  CHECK(wide->leases.size() == 2);
  CHECK(failed_with(ask<prefix_held>(hold_prefix{1, 4, keys_of("a", 0, 6)}),
                    errc::invalid_argument));
  CHECK(failed_with(ask<prefix_held>(hold_prefix{1, 0, keys_of("a", 0, 6)}),
                    errc::invalid_argument));
  CHECK(ask<prefix_held>(hold_prefix{1, UINT32_MAX, {}})->chunks == 0);
  REQUIRE(ask(end_leases{held.leases}));
  CHECK(status().read_leases == 2);
  CHECK(status().held_bytes == 2 * page);
  auto now = status();
  CHECK(now.prefix_lookups == 3);
  CHECK(now.prefix_chunks_held == 4);
  CHECK(now.prefixes_cut == 0);
}

TEST_CASE_FIXTURE(chunk_fixture, "holds of prefixes have a budget: the prefix ends there") {
  REQUIRE(store_prompt("a", 0, 8) == 8);
  REQUIRE(store_prompt("b", 0, 8) == 8);
  CHECK(look_up(1, "a", 8).chunks == 8);
  CHECK(look_up(2, "b", 8).chunks == 4);
  CHECK(status().prefixes_cut == 1);
  CHECK(look_up(3, "a", 8).chunks == 8); // Held already: costs nothing.
  CHECK(acquire_all(3, "b", 0, 4));
  CHECK(failed_with(acquire_all(3, "b", 2, 6), errc::busy));
  CHECK(status().held_bytes == 12 * page);
  REQUIRE(ask(end_owner{1}));
  CHECK(failed_with(acquire_all(4, "b", 2, 6), errc::busy));
  REQUIRE(ask(end_owner{3}));
  CHECK(acquire_all(4, "b", 2, 6));
}

TEST_CASE_FIXTURE(chunk_fixture, "chunks are acquired all or none") {
  REQUIRE(store_prompt("a", 0, 3) == 3);
  CHECK(failed_with(acquire_all(1, "a", 0, 4), errc::not_found));
  CHECK(status().held_bytes == 0);
  CHECK(status().read_leases == 0);
  CHECK(status().misses == 1);
  auto all = acquire_all(1, "a", 0, 3);
  REQUIRE(all);
  CHECK(all->leases.size() == 3);
  CHECK(status().hits == 3);
  auto twice = ask<chunks_acquired>(acquire_chunks{1, {chunk_key("a", 0), chunk_key("a", 0)}});
  REQUIRE(twice);
  CHECK(twice->leases[0].id != twice->leases[1].id);
  REQUIRE(ask(end_owner{1}));
  CHECK(status().held_bytes == 0);
}

TEST_CASE_FIXTURE(chunk_fixture, "without room a prefix is reserved, the rest refused") {
  auto staged = stage(1, "a", 0, 16);
  for (uint64_t i = 0; i < 16; ++i)
    CHECK(staged[i].state == (i < 12 ? is_reserved : no_room));
  CHECK(status().chunks_no_room == 4);
  CHECK(status().waiting == 0);
  // Expired ones still take their part of the budget.
  REQUIRE(ask(expire_writes{ids_of(staged)}));
  CHECK(states(2, "b", 0, 1) == states_t{no_room});
  REQUIRE(ask(end_owner{1}));
  CHECK(states(2, "b", 0, 1) == states_t{is_reserved});
}

TEST_CASE_FIXTURE(chunk_fixture, "chunks larger than the largest object find no room") {
  auto claim = claim_of(1, "a", 0, 2);
  for (auto size : {8 * page + 1, UINT64_MAX}) {
    claim.size_bytes = size;
    auto result = ask<chunk_reservations>(claim);
    REQUIRE(result);
    CHECK(result->chunks[0].state == no_room);
  }
  CHECK(status().used_bytes == 0);
}

TEST_CASE("while the pool grows no chunk gives way to another") {
  chunk_fixture fix{{.usable_pages = 4}};
  REQUIRE(fix.store_prompt("a", 0, 3) == 3);
  CHECK(fix.states(1, "b", 0, 3) == states_t{is_reserved, no_room, no_room});
  CHECK(fix.resident("a", 3) == numbers{0, 1, 2});
  fix.grow(4, true);
  CHECK(fix.states(1, "b", 1, 3) == states_t{is_reserved, is_reserved});
  CHECK(fix.resident("a", 3) == numbers{0});
}

TEST_CASE("a prefix that grows does not push its own chunks out") {
  chunk_fixture fix{{.pages = 4, .options = {page, page, page, 8, 4 * page, 4 * page}}};
  REQUIRE(fix.store_prompt("a", 0, 3) == 3);
  REQUIRE(fix.store_prompt("b", 0, 1) == 1);
  CHECK(fix.states(1, "a", 0, 6)
        == states_t{is_resident, is_resident, is_resident, is_reserved, no_room, no_room});
  CHECK(fix.resident("b", 1).empty());
  CHECK(fix.status().held_bytes == 0);
}

TEST_CASE("one message evicts no more than a slice") {
  constexpr uint64_t count = 2500;
  chunk_fixture fix{
    {.pages = count, .options = {page, page, page, 8, count * page, count * page}}};
  REQUIRE(fix.store_prompt("a", 0, count) == count);
  auto staged = fix.stage(1, "b", 0, 1500);
  CHECK(chunk_fixture::ids_of(staged).size() == memory_tier::slice_objects);
  CHECK(fix.status().evicted_objects == memory_tier::slice_objects);
}

TEST_CASE("values that wait get the room that chunks give back") {
  chunk_fixture fix;
  auto staged = fix.stage(1, "a", 0, 12);
  REQUIRE(fix.store(1, 4));
  auto hold = fix.acquire(2, 1);
  auto waits = fix.start<write_lease>(reserve_write{3, key(2), {}, 4 * page});
  fix.sim.run();
  REQUIRE(waits.pending());
  SUBCASE("when leases end") {
    REQUIRE(fix.ask(end_leases{chunk_fixture::ids_of(staged)}));
  }
  SUBCASE("when a late finish frees them") {
    REQUIRE(fix.ask(expire_writes{chunk_fixture::ids_of(staged)}));
    REQUIRE(waits.pending());
    REQUIRE(fix.ask<chunks_finished>(finish_chunks{chunk_fixture::writes_of(staged), 0, {}}));
  }
  SUBCASE("when finished chunks can be evicted") {
    REQUIRE(fix.ask<chunks_finished>(finish_chunks{chunk_fixture::writes_of(staged), 0, {}}));
  }
  SUBCASE("when their hashing ends") {
    auto done
      = fix.ask<chunks_finished>(finish_chunks{chunk_fixture::writes_of(staged), 9, {}});
    REQUIRE(waits.pending());
    seal_chunks seals;
    for (auto& held : done->holds)
      seals.holds.push_back({held.id, 1});
    REQUIRE(fix.ask(seals));
  }
  CHECK(waits.get());
}

TEST_CASE_FIXTURE(chunk_fixture, "a clear without force keeps what is held readable") {
  REQUIRE(store_prompt("a", 0, 4) == 4);
  REQUIRE(store(1));
  REQUIRE(store(2));
  auto held = look_up(1, "a", 2);
  REQUIRE(look_up(2, "a", 1).chunks == 1); // Held twice, kept once.
  REQUIRE(acquire(3, 2));
  auto open = stage(1, "b", 0, 1);
  REQUIRE(ask(clear_objects{false}));
  CHECK(resident("a", 4) == numbers{0, 1});
  CHECK_FALSE(exists(1));
  CHECK(exists(2));
  CHECK(status().objects == 3);
  CHECK(status().removed == 3);
  CHECK(acquire_all(4, "a", 0, 2));
  REQUIRE(ask(end_owner{4}));
  CHECK(status().used_bytes == 4 * page);
  REQUIRE(ask<chunks_finished>(finish_chunks{writes_of(open), 0, {}}));
  CHECK(resident("b", 1) == numbers{0});
  // Kept objects are objects like others, also for the next clear.
  REQUIRE(ask(end_leases{held.leases}));
  REQUIRE(ask(clear_objects{false}));
  CHECK(resident("a", 4) == numbers{0});
  REQUIRE(ask(clear_objects{true}));
  CHECK(status().objects == 0);
  CHECK(status().used_bytes == 2 * page);
  REQUIRE(ask(end_owner{2}));
  REQUIRE(ask(end_owner{3}));
  CHECK(status().used_bytes == 0);
}

TEST_CASE("a clear without force is effective when it is answered") {
  constexpr uint64_t count = 2500;
  chunk_fixture fix{
    {.pages = count, .options = {page, page, page, 8, count * page, count * page}}};
  REQUIRE(fix.store_prompt("a", 0, count) == count);
  REQUIRE(fix.look_up(1, "a", 2).chunks == 2);
  auto cleared = fix.start(clear_objects{false});
  REQUIRE(fix.sim.step());
  REQUIRE(cleared.get());
  CHECK(fix.resident("a", count) == numbers{0, 1});
  fix.sim.run();
  CHECK(fix.resident("a", count) == numbers{0, 1});
  CHECK(fix.tier().usage().used_bytes == 2 * page);
  CHECK(fix.tier().audit() == "");
}

TEST_CASE_FIXTURE(chunk_fixture, "a chunk that is only being hashed does not outlast a clear") {
  auto staged = stage(1, "p", 0, 2);
  auto done = ask<chunks_finished>(finish_chunks{writes_of(staged), 2, keys_of("p", 0, 2)});
  REQUIRE(done);
  REQUIRE(done->holds.size() == 2);
  REQUIRE(acquire_all(3, "p", 0, 1));
  CHECK(ask(clear_objects{false}));
  // A reader's chunk stays; one that nobody reads is gone at once.
  CHECK(resident("p", 2) == std::vector<uint64_t>{0});
  CHECK(ask(seal_chunks{{{done->holds[0].id, 1}, {done->holds[1].id, 2}}}));
  CHECK(status().read_leases == 1);
}

TEST_CASE_FIXTURE(chunk_fixture, "a prefix is acquired as far as it is there") {
  REQUIRE(store_prompt("a", 0, 2) == 2);
  REQUIRE(store_prompt("a", 3, 4) == 4 - 3);
  auto some = ask<chunks_acquired>(acquire_chunks{2, keys_of("a", 0, 4), true});
  REQUIRE(some);
  CHECK(some->leases.size() == 2);
  CHECK(status().read_leases == 2);
  CHECK(status().prefix_chunks_asked == 4);
  CHECK(status().prefix_chunks_held == 2);
  auto none = ask<chunks_acquired>(acquire_chunks{2, keys_of("b", 0, 4), true});
  REQUIRE(none);
  CHECK(none->leases.empty());
  REQUIRE(ask(end_owner{2}));
  CHECK(status().held_bytes == 0);
}
