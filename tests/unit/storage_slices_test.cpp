#include "support/storage_fixture.hpp"

#include <doctest/doctest.h>

#include <algorithm>

/// Work over many objects: it comes in slices, and others get their turn between two of them.

using namespace kvasir;
using namespace kvasir::test;

namespace {

struct crowded_fixture : storage_fixture {
  static constexpr uint64_t count = 3500;

  crowded_fixture()
    : storage_fixture(
      setup{.pages = count, .options = {3000 * page, 6000 * page, 3000 * page, 8}}) {
    for (uint64_t i = 0; i < count; ++i) {
      auto lease = sim.ask<write_lease>(manager(), reserve_write{1, key(i), {}, 1});
      REQUIRE(lease);
      REQUIRE(sim.ask(manager(), finish_write{lease->id, i}));
    }
  }

  uint64_t used_pages() const { return tier().usage().used_bytes / page; }
};

} // namespace

TEST_CASE_FIXTURE(crowded_fixture, "clear hides all objects at once and frees them in slices") {
  auto held = acquire(1, 7);
  REQUIRE(held);
  auto cleared = start(clear_objects{});
  REQUIRE(sim.step());
  CHECK(cleared.get());
  CHECK(tier().usage().objects == 0);
  CHECK(used_pages() == count);
  // Requests that arrive now are handled between two slices.
  auto exist = start<exist_result>(check_exist{{key(1)}});
  REQUIRE(sim.step()); // A slice, sent before.
  CHECK(used_pages() == count - 1000 + 1);
  CHECK(exist.pending());
  REQUIRE(sim.step());
  CHECK(exist.get()->found == std::vector<uint8_t>{0});
  auto room = start<write_lease>(reserve_write{2, key(1), {}, page});
  REQUIRE(sim.step());
  CHECK(used_pages() == count - 2000 + 1);
  REQUIRE(sim.step());
  CHECK(room.get());
  sim.run();
  CHECK(used_pages() == 2); // What is held, what is reserved.
  REQUIRE(ask(release_read{held->id, false}));
  CHECK(used_pages() == 1);
}

TEST_CASE_FIXTURE(crowded_fixture, "many clears at once are one sweep at a time") {
  for (auto i = 0; i < 10; ++i)
    start(clear_objects{});
  for (auto i = 0; i < 10; ++i)
    REQUIRE(sim.step());
  auto steps = 0;
  while (sim.step())
    ++steps;
  CHECK(steps == 4);
  CHECK(used_pages() == 0);
}

TEST_CASE_FIXTURE(crowded_fixture,
                  "room for a large object is made in slices, others in between") {
  auto large = start<write_lease>(reserve_write{1, key(9999), {}, 2500 * page});
  REQUIRE(sim.step());
  CHECK(large.pending());
  CHECK(tier().usage().evicted_objects == 1000);
  auto exist = start<exist_result>(check_exist{{key(3499), key(0)}});
  REQUIRE(sim.step());
  REQUIRE(sim.step());
  CHECK(exist.get()->found == std::vector<uint8_t>{1, 0});
  CHECK(large.pending());
  sim.run();
  REQUIRE(large.get());
  CHECK(large.count() == 1);
  CHECK(status().waiting == 0);
  CHECK(tier().audit() == "");
}

TEST_CASE_FIXTURE(crowded_fixture,
                  "no message evicts more than about a slice, however many wait") {
  // All of them wait for one claim to end; each needs hundreds of evictions.
  REQUIRE(reserve(1, 9000, 3000));
  auto second = reserve(2, 9001, 400);
  REQUIRE(second);
  std::vector<awaited<write_lease>> waiting;
  for (uint64_t i = 0; i < 4; ++i)
    waiting.push_back(start<write_lease>(reserve_write{3, key(9100 + i), {}, 700 * page}));
  sim.run();
  for (auto& each : waiting)
    REQUIRE(each.pending());
  REQUIRE(sim.ask(manager(), end_owner{1}));
  for (uint64_t i = 0; i < 3000; ++i)
    if (auto lease = sim.ask<write_lease>(manager(), reserve_write{4, key(i), {}, 1}))
      sim.ask(manager(), finish_write{lease->id, 0});
  sim.run();
  auto before = tier().usage().evicted_objects;
  start(end_owner{2});
  while (sim.step()) {
    auto now = tier().usage().evicted_objects;
    CHECK(now - before <= 2 * memory_tier::slice_objects);
    before = now;
  }
  for (auto& each : waiting)
    CHECK(each.count() == 1);
}

TEST_CASE_FIXTURE(crowded_fixture,
                  "a list comes in slices, and what changes meanwhile is no harm") {
  auto first = ask<object_list>(list_objects{0});
  REQUIRE(first);
  CHECK(first->objects.size() == 1000);
  REQUIRE(first->next_cursor != 0);
  REQUIRE(ask(remove_object{key(1500)}));
  REQUIRE(ask(remove_object{key(10)}));
  REQUIRE(store(5000));
  std::vector<std::string> names;
  for (auto& object : first->objects)
    names.push_back(object.key.bytes);
  for (auto cursor = first->next_cursor; cursor != 0;) {
    auto slice = ask<object_list>(list_objects{cursor});
    REQUIRE(slice);
    CHECK(slice->objects.size() <= 1000);
    for (auto& object : slice->objects)
      names.push_back(object.key.bytes);
    cursor = slice->next_cursor;
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK_FALSE(std::binary_search(names.begin(), names.end(), key(1500).bytes));
  CHECK(names.size() >= count - 2);
}

TEST_CASE_FIXTURE(crowded_fixture, "a list that is interrupted by a clear ends") {
  auto first = ask<object_list>(list_objects{0});
  REQUIRE(first);
  REQUIRE(ask(clear_objects{}));
  auto next = ask<object_list>(list_objects{first->next_cursor});
  REQUIRE(next);
  CHECK(next->objects.empty());
}
