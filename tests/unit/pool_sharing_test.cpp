#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "support/joined_engine.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr auto page = slot_allocator::page_bytes;
using found = object_index_reader::found;

object_key chunk(uint64_t number) {
  return {std::string(1, '\0') + std::to_string(number)};
}

/// A pool that is shared with two engines.
struct fixture {
  explicit fixture(uint64_t pages = 8, const char* policy = "lru", uint64_t max_objects = 100)
    : index(std::move(*object_index::create(max_objects))),
      tier(pages * page, std::move(*make_eviction_policy(policy))),
      engine(*index, board),
      other(*index, board) {
    tier.share(*index, board);
    tier.grow(pages * page);
  }
  ~fixture() { CHECK(tier.audit() == ""); }

  caf::expected<reserved_object> reserve(const object_key& key, uint64_t pages = 1,
                                         std::string_view tenant = {},
                                         const object_key& parent = {}) {
    size_t budget = 1000;
    auto result = tier.reserve({key, {}, pages * page, tenant, parent.bytes}, budget);
    CHECK(tier.audit() == "");
    return result;
  }

  bool store(uint64_t number, uint64_t pages = 1, std::optional<uint64_t> checksum = 1) {
    auto object = reserve(chunk(number), pages);
    return object && !tier.publish(object->handle, checksum, memory_tier::conflict::keep);
  }

  found find(uint64_t number) { return engine.find(chunk(number), last); }

  std::unique_ptr<object_index> index;
  hold_board board;
  pool_tier tier;
  joined_engine engine;
  joined_engine other;
  indexed_object last;
};

} // namespace

TEST_CASE_FIXTURE(fixture, "engines find chunks that are published, nothing else") {
  auto reserved = reserve(chunk(1));
  REQUIRE(reserved);
  CHECK(find(1) == found::no);
  REQUIRE(!tier.publish(reserved->handle, std::nullopt, memory_tier::conflict::keep));
  REQUIRE(find(1) == found::yes);
  CHECK(last.where == reserved->where);
  CHECK_FALSE(last.sealed);
  tier.seal(reserved->handle, 5);
  REQUIRE(find(1) == found::yes);
  CHECK(last.sealed);
  CHECK(last.checksum == 5);
  auto value = reserve({"value"});
  REQUIRE(!tier.publish(value->handle, 1, memory_tier::conflict::replace));
  CHECK(engine.find({"value"}, last) == found::no);
  CHECK(tier.usage().indexed_objects == 1);
}

TEST_CASE_FIXTURE(fixture, "what is removed, dropped, evicted or cleared is found no more") {
  for (uint64_t i = 0; i < 8; ++i)
    REQUIRE(store(i));
  CHECK(tier.remove(chunk(0)));
  CHECK(find(0) == found::no);
  tier.drop(last.where.generation);
  REQUIRE(find(1) == found::yes);
  tier.drop(last.where.generation); // A slot's generation is its object's handle.
  CHECK(find(1) == found::no);
  REQUIRE(store(8, 3));
  CHECK(find(2) == found::no);
  REQUIRE(find(7) == found::yes);
  tier.clear({last.where.generation});
  for (uint64_t i = 0; i < 9; ++i)
    CHECK(find(i) == (i == 7 ? found::yes : found::no));
  while (tier.sweep()) {
  }
  CHECK(find(7) == found::yes);
  CHECK(tier.usage().indexed_objects == 1);
}

TEST_CASE_FIXTURE(fixture, "a chunk that an engine reads is not evicted, and counts as used") {
  for (uint64_t i = 0; i < 8; ++i)
    REQUIRE(store(i));
  auto held = engine.acquire(chunk(0));
  REQUIRE(held);
  REQUIRE(store(8));
  CHECK(tier.usage().skipped_evictions == 1);
  CHECK(tier.usage().evicted_objects == 1);
  CHECK(find(0) == found::yes);
  CHECK(engine.reader().still(held->object)); // As if nothing had happened.
  CHECK(find(1) == found::no);
  engine.release(*held);
  for (uint64_t i = 9; i < 15; ++i)
    REQUIRE(store(i));
  CHECK(find(0) == found::yes); // It was the youngest when it was passed over.
  REQUIRE(store(15));
  REQUIRE(store(16));
  CHECK(find(0) == found::no);
  CHECK(tier.usage().skipped_evictions == 1);
}

TEST_CASE("a pool of which engines read everything has no room, and has it again afterwards") {
  for (auto policy : {"lru", "s3fifo"}) {
    fixture all{400, policy, 400};
    std::vector<joined_engine::hold> holds;
    for (uint64_t i = 0; i < 400; ++i) {
      REQUIRE(all.store(i));
      holds.push_back(all.engine.acquire(chunk(i)).value());
    }
    auto more = all.reserve(chunk(400));
    REQUIRE(!more);
    CHECK(more.error() == errc::out_of_memory);
    CHECK(all.tier.usage().skipped_evictions == 256); // One allocation looks no further.
    for (auto& held : holds)
      all.engine.release(held);
    CHECK(all.store(400));
    CHECK(all.tier.usage().evicted_objects == 1);
  }
}

TEST_CASE("chunks that engines read do not keep others' from giving way") {
  fixture all{300, "lru", 400};
  for (uint64_t i = 0; i < 300; ++i) { // The largest tenant's; all are read.
    auto object = all.reserve(chunk(i), 1, i < 200 ? "a" : "b");
    REQUIRE(!all.tier.publish(object->handle, 1, memory_tier::conflict::keep));
    if (i < 200)
      REQUIRE(all.engine.acquire(chunk(i)));
  }
  REQUIRE(all.reserve({"value"}));
  CHECK(all.tier.usage().skipped_evictions == 200);
  CHECK(all.tier.usage().evicted_objects == 1);
  CHECK(all.find(200) == found::no);
}

TEST_CASE_FIXTURE(fixture, "a large object does not push out neighbours that an engine reads") {
  for (uint64_t i = 0; i < 8; ++i)
    REQUIRE(store(i));
  std::vector<joined_engine::hold> holds;
  for (uint64_t i = 1; i < 8; i += 2)
    holds.push_back(engine.acquire(chunk(i)).value());
  CHECK(!reserve(chunk(9), 2));
  for (uint64_t i = 1; i < 8; i += 2)
    CHECK(find(i) == found::yes);
  engine.release(holds[1]);
  CHECK(reserve(chunk(9), 2));
  CHECK(find(1) == found::yes);
}

TEST_CASE_FIXTURE(fixture, "a tenant's limit does not cost chunks that an engine reads") {
  REQUIRE(!tier.set_quota("t", 2 * page));
  for (uint64_t i = 0; i < 2; ++i) {
    auto object = reserve(chunk(i), 1, "t");
    REQUIRE(!tier.publish(object->handle, 1, memory_tier::conflict::keep));
  }
  auto first = engine.acquire(chunk(0));
  auto second = engine.acquire(chunk(1));
  REQUIRE(first);
  REQUIRE(second);
  auto refused = reserve(chunk(2), 1, "t");
  REQUIRE(!refused);
  CHECK(refused.error() == errc::out_of_memory);
  engine.release(*second);
  CHECK(reserve(chunk(2), 1, "t"));
  CHECK(find(0) == found::yes);
  CHECK(find(1) == found::no);
}

TEST_CASE_FIXTURE(fixture,
                  "what is removed while an engine reads it keeps its memory till the end") {
  REQUIRE(store(1, 3));
  auto held = engine.acquire(chunk(1));
  auto twice = other.acquire(chunk(1));
  REQUIRE(held);
  REQUIRE(twice);
  CHECK(tier.remove(chunk(1)));
  CHECK(find(1) == found::no);
  CHECK_FALSE(engine.reader().still(held->object));
  CHECK(tier.usage().used_bytes == 3 * page);
  CHECK(tier.usage().limbo_bytes == 3 * page);
  REQUIRE(store(1)); // Its key is free.
  engine.release(*held);
  tier.revisit();
  CHECK(tier.usage().limbo_bytes == 3 * page);
  other.release(*twice);
  tier.revisit();
  CHECK(tier.usage().limbo_bytes == 0);
  CHECK(tier.usage().used_bytes == page);
}

TEST_CASE_FIXTURE(fixture, "who lacks room looks into limbo before it evicts") {
  for (uint64_t i = 0; i < 8; ++i)
    REQUIRE(store(i));
  auto held = engine.acquire(chunk(3));
  tier.remove(chunk(3));
  engine.release(*held);
  REQUIRE(store(9));
  CHECK(tier.usage().evicted_objects == 0);
  CHECK(tier.usage().limbo_bytes == 0);
}

TEST_CASE_FIXTURE(fixture, "a lease that ends leaves memory to an engine that reads it") {
  REQUIRE(store(1));
  auto lease = tier.hold(chunk(1));
  auto held = engine.acquire(chunk(1));
  tier.remove(chunk(1));
  CHECK(tier.usage().limbo_bytes == 0);
  REQUIRE(!tier.release(lease->handle));
  CHECK(tier.usage().limbo_bytes == page);
  CHECK(tier.release(lease->handle) == errc::not_reserved);
  engine.release(*held);
  tier.revisit();
  CHECK(tier.usage().used_bytes == 0);
}

TEST_CASE_FIXTURE(fixture, "all that a dead engine held is free when it is removed") {
  for (uint64_t i = 0; i < 8; ++i) {
    REQUIRE(store(i));
    REQUIRE(engine.acquire(chunk(i)));
  }
  REQUIRE(other.acquire(chunk(7)));
  tier.clear({});
  while (tier.sweep()) {
  }
  CHECK(tier.usage().limbo_bytes == 8 * page);
  board.remove(engine.id());
  tier.revisit();
  CHECK(tier.usage().limbo_bytes == page);
  board.remove(other.id());
  tier.revisit();
  CHECK(tier.usage().used_bytes == 0);
}

TEST_CASE_FIXTURE(fixture, "a hold that came too late is none, and hinders nobody for long") {
  REQUIRE(store(1));
  REQUIRE(find(1) == found::yes);
  tier.remove(chunk(1));
  auto late = engine.page().publish(last.where);
  CHECK_FALSE(engine.reader().still(last));
  CHECK(tier.usage().used_bytes == 0);
  REQUIRE(store(2)); // In the same place, in the same record.
  engine.page().withdraw(*late);
  CHECK(tier.remove(chunk(2)));
  CHECK(tier.usage().used_bytes == 0);
}

TEST_CASE_FIXTURE(fixture,
                  "touches reach the policy before it chooses; nonsense does no harm") {
  for (uint64_t i = 0; i < 8; ++i)
    REQUIRE(store(i));
  REQUIRE(find(0) == found::yes);
  engine.page().touch(last.entry);
  for (uint32_t entry : {UINT32_MAX - 1, 1u << 31, 0u, 100'000u})
    other.page().touch(entry);
  REQUIRE(store(8));
  CHECK(find(0) == found::yes);
  CHECK(find(1) == found::no);
  CHECK(tier.usage().touches == 5);
}

TEST_CASE_FIXTURE(fixture, "a chunk whose children went on is found until it goes itself") {
  auto first = reserve(chunk(1));
  REQUIRE(!tier.publish(first->handle, 1, memory_tier::conflict::keep));
  auto second = reserve(chunk(2), 1, {}, chunk(1));
  REQUIRE(!tier.publish(second->handle, 1, memory_tier::conflict::keep));
  auto held = engine.acquire(chunk(2));
  REQUIRE(reserve(chunk(3), 6));
  CHECK(!reserve(chunk(4))); // The child is read, the parent has a child.
  CHECK(find(1) == found::yes);
  engine.release(*held);
  CHECK(reserve(chunk(4)));
  CHECK(find(1) == found::yes);
  CHECK(find(2) == found::no);
}

TEST_CASE("chunks that find no place in the index are unknown, not missing") {
  fixture small{64, "lru", 1};
  for (uint64_t i = 0; i < 20; ++i)
    REQUIRE(small.store(i));
  uint64_t unknown = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    auto answer = small.find(i);
    CHECK(answer != found::no);
    unknown += answer == found::unknown;
  }
  CHECK(unknown == 12);
  CHECK(small.tier.usage().overflowed_sets == 1);
  CHECK(small.tier.usage().index_refused == 12);
  for (uint64_t i = 0; i < 20; ++i)
    CHECK(small.tier.remove(chunk(i)));
  CHECK(small.tier.usage().overflowed_sets == 0);
  CHECK(small.tier.usage().used_bytes == 0);
  CHECK(small.find(1) == found::no);
}
