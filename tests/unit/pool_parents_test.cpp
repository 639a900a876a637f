#include "support/chunk_fixture.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

/// A prefix without its first chunk is worthless: who has children goes after them.

using namespace kvasir;
using namespace kvasir::test;

namespace {

using numbers = std::vector<uint64_t>;

/// Stores one-page prompts until `done`; each is asked for often enough to be no mere scan.
template <class Done>
bool flood(chunk_fixture& fix, Done done) {
  for (uint64_t i = 0; i < 1000 && !done(); ++i) {
    auto prompt = "flood" + std::to_string(i);
    if (fix.store_prompt(prompt, 0, 1) != 1)
      return false;
    for (auto reads = 0; reads < 3; ++reads)
      fix.look_up(9, prompt, 1);
    fix.ask(end_owner{9});
  }
  return done();
}

} // namespace

TEST_CASE("the end of a prompt is evicted before its beginning, whatever was read") {
  for (auto policy : {"lru", "s3fifo"}) {
    chunk_fixture fix{
      {.pages = 32, .options = {page, page, page, 8, 32 * page, 32 * page}, .policy = policy}};
    REQUIRE(fix.store_prompt("a", 0, 8) == 8);
    for (auto i = 0; i < 20; ++i) {
      auto held = fix.look_up(1, "a", 8);
      REQUIRE(held.chunks == 8);
      REQUIRE(fix.acquire_all(2, "a", 4, 8));
      REQUIRE(fix.ask(end_owner{2}));
      REQUIRE(fix.ask(end_leases{held.leases}));
    }
    REQUIRE(flood(fix, [&] { return fix.resident("a", 8).size() <= 4; }));
    CHECK(fix.resident("a", 8) == numbers{0, 1, 2, 3});
  }
}

TEST_CASE("a dead prompt leaves in one go, from its end") {
  for (auto policy : {"lru", "s3fifo"}) {
    chunk_fixture fix{
      {.pages = 16, .options = {page, page, page, 8, 16 * page, 16 * page}, .policy = policy}};
    REQUIRE(fix.store_prompt("a", 0, 8) == 8);
    REQUIRE(fix.store_prompt("b", 0, 8) == 8);
    for (uint64_t left = 8; left > 0; --left) {
      REQUIRE(fix.store_prompt("c" + std::to_string(left), 0, 1) == 1);
      CHECK(fix.resident("a", 8).size() == left - 1);
    }
  }
}

TEST_CASE("a beginning that two prompts share stays until both are gone") {
  chunk_fixture fix{{.pages = 8, .options = {page, page, page, 8, 8 * page, 8 * page}}};
  REQUIRE(fix.store_prompt("a", 0, 2) == 2);
  for (uint64_t branch = 0; branch < 3; ++branch) {
    reserve_chunks claim{1, {}, {}, page, {}};
    claim.chunks.push_back({chunk_key("branch", branch), chunk_key("a", 1)});
    auto staged = fix.ask<chunk_reservations>(claim);
    REQUIRE(staged);
    REQUIRE(
      fix.ask<chunks_finished>(finish_chunks{chunk_fixture::writes_of(staged->chunks), 0, {}}));
  }
  for (uint64_t i = 0; !fix.resident("branch", 3).empty(); ++i) {
    CHECK(fix.resident("a", 2) == numbers{0, 1});
    REQUIRE(fix.store_prompt("other" + std::to_string(i), 0, 1) == 1);
  }
  REQUIRE(fix.store_prompt("last", 0, 1) == 1);
  CHECK(fix.resident("a", 2) == numbers{0});
}

TEST_CASE("a chunk whose parent is absent or comes later is a chunk like others") {
  chunk_fixture fix{{.pages = 4, .options = {page, page, page, 8, 4 * page, 4 * page}}};
  REQUIRE(fix.store_prompt("a", 1, 2) == 1);
  REQUIRE(fix.store_prompt("a", 0, 1) == 1);
  REQUIRE(fix.store_prompt("b", 0, 2) == 2);
  REQUIRE(fix.store_prompt("c", 0, 2) == 2);
  CHECK(fix.resident("a", 2).empty());
  CHECK(fix.resident("b", 2) == numbers{0, 1});
}

TEST_CASE("children whose parent was removed are evicted like others") {
  chunk_fixture fix{{.pages = 4, .options = {page, page, page, 8, 4 * page, 4 * page}}};
  REQUIRE(fix.store_prompt("a", 0, 3) == 3);
  SUBCASE("removed") {
    REQUIRE(fix.ask(remove_object{chunk_key("a", 0)}));
  }
  SUBCASE("dropped as corrupt, and still held by another") {
    auto held = fix.acquire_all(1, "a", 0, 1);
    REQUIRE(fix.acquire_all(2, "a", 0, 1));
    REQUIRE(fix.ask(release_read{held->leases[0].id, true}));
    REQUIRE(fix.ask(end_owner{2}));
  }
  SUBCASE("replaced") {
    auto other = fix.ask<write_lease>(reserve_write{1, chunk_key("a", 0), {}, page});
    REQUIRE(fix.ask(finish_write{other->id, 1}));
    REQUIRE(fix.ask(remove_object{chunk_key("a", 0)}));
  }
  CHECK(fix.resident("a", 3) == numbers{1, 2});
  REQUIRE(fix.store_prompt("b", 0, 2) == 2); // Its record is used anew, by b's parent.
  REQUIRE(fix.store_prompt("c", 0, 2) == 2);
  CHECK(fix.resident("a", 3).empty());
  CHECK(fix.resident("b", 2) == numbers{0, 1});
}

TEST_CASE("a clear that keeps a child or a parent leaves the books right") {
  chunk_fixture fix{{.pages = 4, .options = {page, page, page, 8, 4 * page, 4 * page}}};
  REQUIRE(fix.store_prompt("a", 0, 3) == 3);
  uint64_t kept = 0;
  SUBCASE("the first") {}
  SUBCASE("the middle") {
    kept = 1;
  }
  SUBCASE("the last") {
    kept = 2;
  }
  REQUIRE(fix.acquire_all(1, "a", kept, kept + 1));
  REQUIRE(fix.ask(clear_objects{false}));
  CHECK(fix.resident("a", 3) == numbers{kept});
  CHECK(fix.tier().usage().used_bytes == page);
  REQUIRE(fix.ask(end_owner{1}));
  REQUIRE(fix.store_prompt("b", 0, 4) == 4);
  CHECK(fix.resident("a", 3).empty());
}

TEST_CASE("a parent that was held while its children went can be evicted when released") {
  chunk_fixture fix{{.pages = 4, .options = {page, page, page, 8, 4 * page, 4 * page}}};
  REQUIRE(fix.store_prompt("a", 0, 2) == 2);
  REQUIRE(fix.acquire_all(1, "a", 0, 1));
  REQUIRE(fix.store_prompt("b", 0, 3) == 3);
  CHECK(fix.resident("a", 2) == numbers{0});
  REQUIRE(fix.ask(end_owner{1}));
  REQUIRE(fix.store_prompt("c", 0, 4) == 4);
  CHECK(fix.resident("a", 2).empty());
}

TEST_CASE("neighbours in the pool do not give way before their children") {
  // Values of one page between chunks, free memory scattered: room for a large value is made
  // by evicting neighbours.
  chunk_fixture fix{{.pages = 64, .options = {32 * page, 64 * page, page, 8, 64 * page, page}}};
  for (uint64_t i = 0; i < 16; ++i) {
    REQUIRE(fix.store_prompt("a", i, i + 1) == 1);
    REQUIRE(fix.store(i, 3));
  }
  for (uint64_t i = 0; i < 16; i += 2)
    REQUIRE(fix.ask(remove_object{key(i)}));
  auto before = fix.resident("a", 16);
  while (!before.empty()) {
    REQUIRE(fix.reserve(1, 100, 8));
    REQUIRE(fix.ask(end_owner{1}));
    REQUIRE(fix.store(200 + before.size(), 5));
    auto now = fix.resident("a", 16);
    for (uint64_t i = 0; i < now.size(); ++i)
      REQUIRE(now[i] == i); // A prefix, always.
    if (now.size() == before.size())
      break;
    before = now;
  }
  CHECK(before.size() < 16);
}
