#include "backends/pool_tier.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace kvasir;

namespace {

constexpr auto page = slot_allocator::page_bytes;
constexpr auto no_limit = SIZE_MAX;

struct fixture {
  explicit fixture(uint64_t pages = 16, const char* policy = "lru")
    : tier(pages * page, std::move(*make_eviction_policy(policy))) {
    tier.grow(pages * page);
  }
  ~fixture() { CHECK(tier.audit() == ""); }

  static object_key key(uint64_t number) { return {std::to_string(number)}; }

  caf::expected<reserved_object> reserve(uint64_t number, uint64_t pages = 1,
                                         size_t limit = no_limit) {
    auto name = key(number);
    return tier.reserve({name, {}, pages * page}, limit);
  }

  caf::error publish(object_handle handle, uint64_t checksum) {
    return tier.publish(handle, checksum, memory_tier::conflict::replace);
  }

  object_handle store(uint64_t number, uint64_t pages = 1, uint64_t checksum = 0) {
    auto object = reserve(number, pages);
    REQUIRE(object);
    REQUIRE(!publish(object->handle, checksum));
    return object->handle;
  }

  pool_tier tier;
};

} // namespace

TEST_CASE_FIXTURE(fixture, "only publish makes an object readable, only once") {
  auto object = reserve(1);
  REQUIRE(object);
  CHECK_FALSE(tier.contains(key(1)));
  CHECK(!tier.hold(key(1)));
  CHECK(tier.release(object->handle) == errc::not_reserved);
  CHECK(!publish(object->handle, 5));
  CHECK(publish(object->handle, 5) == errc::not_reserved);
  CHECK(tier.abort(object->handle) == errc::not_reserved);
  CHECK(tier.hold(key(1))->checksum == 5);
}

TEST_CASE_FIXTURE(fixture, "an aborted reservation leaves nothing, and cannot come back") {
  auto object = reserve(1, 3);
  REQUIRE(object);
  CHECK(tier.usage().used_bytes == 3 * page);
  CHECK(!tier.abort(object->handle));
  CHECK(tier.usage().used_bytes == 0);
  CHECK(tier.abort(object->handle) == errc::not_reserved);
  CHECK(publish(object->handle, 0) == errc::not_reserved);
  auto other = reserve(2, 3); // The same record, the same place.
  REQUIRE(other);
  CHECK(other->where.offset_bytes == object->where.offset_bytes);
  CHECK(other->where.generation != object->where.generation);
  CHECK(publish(object->handle, 0) == errc::not_reserved);
}

TEST_CASE_FIXTURE(fixture, "one place never carries one generation twice, whoever lies there") {
  std::map<uint64_t, std::vector<uint64_t>> seen;
  std::mt19937_64 random{1};
  std::vector<object_handle> open;
  for (auto i = 0; i < 2000; ++i) {
    if (auto object = reserve(1, 1 + random() % 3)) {
      auto& generations = seen[object->where.offset_bytes];
      REQUIRE(std::count(generations.begin(), generations.end(), object->where.generation)
              == 0);
      generations.push_back(object->where.generation);
      open.push_back(object->handle);
    }
    if (open.size() > random() % 5) {
      std::swap(open[random() % open.size()], open.back());
      REQUIRE(!tier.abort(open.back()));
      open.pop_back();
    }
  }
}

TEST_CASE_FIXTURE(fixture, "holds are counted: memory is free after the last one") {
  store(1, 2);
  auto first = tier.hold(key(1));
  auto second = tier.hold(key(1));
  REQUIRE(first);
  CHECK(first->handle == second->handle);
  CHECK(tier.usage().held_bytes == 2 * page);
  CHECK(tier.unheld_bytes(key(1)) == 0);
  CHECK(tier.remove(key(1)));
  CHECK_FALSE(tier.remove(key(1)));
  CHECK(!tier.release(first->handle));
  CHECK(tier.usage().used_bytes == 2 * page);
  CHECK(!tier.release(first->handle));
  CHECK(tier.usage().used_bytes == 0);
  CHECK(tier.usage().held_bytes == 0);
  CHECK(tier.release(first->handle) == errc::not_reserved);
}

TEST_CASE_FIXTURE(fixture, "an object that is not held cannot be released") {
  auto handle = store(1);
  CHECK(tier.release(handle) == errc::not_reserved);
  CHECK(tier.contains(key(1)));
}

TEST_CASE_FIXTURE(fixture, "held objects are never evicted, and can be once released") {
  store(1, 8);
  store(2, 8);
  auto held = tier.hold(key(1));
  REQUIRE(held);
  REQUIRE(reserve(3, 8));
  CHECK(tier.contains(key(1)));
  CHECK_FALSE(tier.contains(key(2)));
  CHECK(reserve(4).error() == errc::out_of_memory);
  REQUIRE(!tier.release(held->handle));
  REQUIRE(reserve(4));
  CHECK_FALSE(tier.contains(key(1)));
}

TEST_CASE_FIXTURE(fixture, "reservations are never evicted") {
  REQUIRE(reserve(1, 8));
  REQUIRE(reserve(2, 8));
  CHECK(reserve(3).error() == errc::out_of_memory);
  CHECK(tier.usage().evicted_objects == 0);
}

TEST_CASE_FIXTURE(fixture, "what can never fit evicts nothing") {
  store(1);
  CHECK(reserve(2, 17).error() == errc::too_large);
  auto name = key(2);
  auto budget = no_limit;
  CHECK(tier.reserve({name, {}, UINT64_MAX}, budget).error() == errc::too_large);
  CHECK(tier.contains(key(1)));
}

TEST_CASE("an eviction limit is kept, and the next call goes on") {
  for (auto policy : {"lru", "s3fifo"}) {
    fixture fix{3000, policy};
    for (uint64_t i = 0; i < 3000; ++i)
      fix.store(i);
    auto calls = 1;
    for (; !fix.reserve(9999, 2500, 1000); ++calls) {
      REQUIRE(fix.reserve(9999, 2500, 0).error() == errc::busy);
      REQUIRE(fix.tier.usage().evicted_objects == static_cast<uint64_t>(calls) * 1000);
    }
    CHECK(calls == 3);
    CHECK(fix.tier.usage().evicted_objects >= 2500);
    CHECK(fix.tier.usage().evicted_objects <= 3000);
  }
}

TEST_CASE("with scattered holds a large object still finds room, within its limit") {
  for (auto policy : {"lru", "s3fifo"}) {
    fixture fix{1024, policy};
    for (uint64_t i = 0; i < 1024; ++i)
      fix.store(i);
    std::vector<object_handle> held;
    for (uint64_t i = 0; i < 1024; i += 64)
      held.push_back(fix.tier.hold(fixture::key(i))->handle);
    CHECK(fix.reserve(5000, 60, 4000));
    for (uint64_t i = 0; i < 1024; i += 64)
      CHECK(fix.tier.contains(fixture::key(i)));
    // No run of 64 is left, whatever is evicted: the books stay right when it gives up.
    CHECK(fix.reserve(5001, 64, 4000).error() == errc::out_of_memory);
    CHECK(fix.tier.audit() == "");
    for (auto handle : held)
      CHECK(!fix.tier.release(handle));
    CHECK(fix.reserve(5001, 512, 4000));
  }
}

TEST_CASE_FIXTURE(fixture, "clear hides everything at once and keeps what is held") {
  auto early = reserve(5);
  store(1, 2);
  store(2);
  auto held = tier.hold(key(1));
  tier.clear({});
  CHECK(tier.usage().objects == 0);
  CHECK(tier.usage().removed == 2);
  CHECK_FALSE(tier.contains(key(1)));
  CHECK(!tier.hold(key(2)));
  CHECK_FALSE(tier.remove(key(2)));
  CHECK(tier.unheld_bytes(key(2)) == 0);
  CHECK(tier.list(0).objects.empty());
  CHECK(tier.audit() == "");
  CHECK(tier.usage().used_bytes == 4 * page); // Until it is swept.
  CHECK_FALSE(tier.sweep());
  CHECK(tier.usage().used_bytes == 3 * page);
  CHECK(!publish(early->handle, 0)); // Was reserved before, is published after.
  CHECK(tier.contains(key(5)));
  CHECK(!tier.release(held->handle));
  CHECK(tier.usage().used_bytes == page);
}

TEST_CASE_FIXTURE(fixture, "a cleared key can be stored again before and after the sweep") {
  store(1, 1, 0x01d);
  store(2, 1, 0x01d);
  tier.clear({});
  store(1, 1, 0x2e3);
  CHECK(tier.usage().replaced == 0);
  CHECK_FALSE(tier.sweep());
  store(2, 1, 0x2e3);
  CHECK(tier.hold(key(1))->checksum == 0x2e3);
  CHECK(tier.hold(key(2))->checksum == 0x2e3);
  CHECK(tier.usage().objects == 2);
  CHECK(tier.usage().used_bytes == 2 * page);
}

TEST_CASE_FIXTURE(fixture,
                  "what was cleared makes room first-hand, without counting as evicted") {
  for (uint64_t i = 0; i < 16; ++i)
    store(i);
  tier.clear({});
  REQUIRE(reserve(100, 8));
  CHECK(tier.usage().evicted_objects == 0);
  CHECK_FALSE(tier.sweep());
  CHECK(tier.usage().used_bytes == 8 * page);
}

TEST_CASE_FIXTURE(fixture, "a held object that was cleared may be dropped or released") {
  auto handle = store(1);
  REQUIRE(tier.hold(key(1)));
  tier.clear({});
  SUBCASE("dropped") {
    tier.drop(handle);
  }
  SUBCASE("released before the sweep") {}
  SUBCASE("swept first") {
    tier.sweep();
  }
  CHECK(!tier.release(handle));
  tier.sweep();
  CHECK(tier.usage().used_bytes == 0);
  CHECK(tier.usage().removed == 1);
  tier.drop(handle); // Nothing is there any more.
}

TEST_CASE("sweeps and lists of many objects come in slices") {
  fixture fix{3500};
  for (uint64_t i = 0; i < 3500; ++i)
    fix.store(i);
  uint64_t cursor = 0;
  std::vector<size_t> slices;
  do {
    auto slice = fix.tier.list(cursor);
    slices.push_back(slice.objects.size());
    cursor = slice.next_cursor;
  } while (cursor != 0);
  CHECK(slices == std::vector<size_t>{1000, 1000, 1000, 500});
  fix.tier.clear({});
  auto sweeps = 1;
  for (; fix.tier.sweep(); ++sweeps)
    CHECK(fix.tier.usage().used_bytes == (3500 - 1000 * static_cast<uint64_t>(sweeps)) * page);
  CHECK(sweeps == 4);
  CHECK(fix.tier.usage().used_bytes == 0);
  CHECK_FALSE(fix.tier.sweep());
}

TEST_CASE_FIXTURE(fixture, "a list cursor from nowhere ends the list") {
  store(1);
  for (auto cursor : {uint64_t{1}, uint64_t{1000}, uint64_t{1} << 32, UINT64_MAX}) {
    auto slice = tier.list(cursor);
    CHECK(slice.objects.empty());
    CHECK(slice.next_cursor == 0);
  }
}

TEST_CASE("a second clear in the middle of a sweep starts over") {
  fixture fix{2500};
  for (uint64_t i = 0; i < 2500; ++i)
    fix.store(i);
  fix.tier.clear({});
  CHECK(fix.tier.sweep());
  for (uint64_t i = 0; i < 500; ++i)
    fix.store(i);
  fix.tier.clear({});
  while (fix.tier.sweep()) {
  }
  CHECK(fix.tier.usage().used_bytes == 0);
}

TEST_CASE("a million small objects are stored and found, with books that agree") {
  fixture fix{1'000'000};
  for (uint64_t i = 0; i < 1'000'000; ++i) {
    auto object = fix.reserve(i, 1, 0);
    REQUIRE(object);
    REQUIRE(!fix.publish(object->handle, i));
  }
  CHECK(fix.tier.usage().objects == 1'000'000);
  CHECK(fix.tier.usage().evicted_objects == 0);
  for (uint64_t i = 0; i < 1'000'000; i += 997) {
    auto held = fix.tier.hold(fixture::key(i));
    REQUIRE(held);
    CHECK(held->checksum == i);
    CHECK(!fix.tier.release(held->handle));
  }
}
