#include "actors/lease_table.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

using kvasir::lease_id;
using kvasir::lease_table;
using kvasir::owner_id;
using kind = lease_table::kind;

TEST_CASE("a lease is taken once, with what it was given") {
  lease_table table;
  auto id = table.add({7, 42, 4096, kind::read});
  CHECK(id != 0);
  CHECK(table.reads() == 1);
  auto taken = table.take(id, kind::read);
  REQUIRE(taken);
  CHECK(taken->owner == 7);
  CHECK(taken->object == 42);
  CHECK(taken->size_bytes == 4096);
  CHECK_FALSE(table.take(id, kind::read));
  CHECK(table.reads() == 0);
}

TEST_CASE("a lease of the other kind is not there") {
  lease_table table;
  auto write = table.add({1, 1, 1, kind::write});
  CHECK_FALSE(table.take(write, kind::read));
  CHECK(table.writes() == 1);
  CHECK(table.take(write, kind::write));
}

TEST_CASE("ids are never reused, also when their records are") {
  lease_table table;
  std::set<lease_id> seen;
  for (auto i = 0; i < 1000; ++i) {
    auto id = table.add({1, 1, 1, kind::write});
    CHECK(seen.insert(id).second);
    for (auto old : seen)
      if (old != id)
        REQUIRE_FALSE(table.take(old, kind::write));
    REQUIRE(table.take(id, kind::write));
  }
}

TEST_CASE("ids out of range and of unused records are not there") {
  lease_table table;
  for (lease_id id : {lease_id{0}, lease_id{1}, lease_id{1} << 32, ~lease_id{0}})
    CHECK_FALSE(table.take(id, kind::write));
  auto id = table.add({1, 1, 1, kind::write});
  CHECK_FALSE(table.take(id + 1, kind::write));
  CHECK_FALSE(table.take(id - (lease_id{1} << 32), kind::write));
  CHECK_FALSE(table.take(id + (lease_id{1} << 32), kind::write));
  CHECK(table.writes() == 1);
}

TEST_CASE("an owner without leases has none, however often it is asked") {
  lease_table table;
  CHECK_FALSE(table.take_any(1));
  auto id = table.add({1, 1, 1, kind::read});
  CHECK_FALSE(table.take_any(2));
  REQUIRE(table.take(id, kind::read));
  CHECK_FALSE(table.take_any(1));
  CHECK_FALSE(table.take_any(1));
  table.add({1, 9, 1, kind::write}); // It may come again.
  CHECK(table.take_any(1)->object == 9);
  CHECK_FALSE(table.take_any(1));
}

TEST_CASE("at any time the table holds what a plain map holds") {
  std::mt19937_64 random{5};
  lease_table table;
  std::map<lease_id, lease_table::lease> model;
  for (auto i = 0; i < 50'000; ++i) {
    switch (random() % 4) {
      case 0:
      case 1: {
        lease_table::lease what{1 + random() % 8, random(), random() % 100,
                                random() % 2 == 0 ? kind::read : kind::write};
        REQUIRE(model.emplace(table.add(what), what).second);
        break;
      }
      case 2: {
        if (model.empty())
          break;
        auto one = std::next(model.begin(), static_cast<long>(random() % model.size()));
        auto taken = table.take(one->first, one->second.what);
        REQUIRE(taken);
        CHECK(taken->object == one->second.object);
        model.erase(one);
        break;
      }
      case 3: {
        if (random() % 20 != 0)
          break;
        owner_id owner = 1 + random() % 8;
        std::multiset<uint64_t> expected;
        std::erase_if(model, [&](auto& entry) {
          if (entry.second.owner != owner)
            return false;
          expected.insert(entry.second.object);
          return true;
        });
        std::multiset<uint64_t> taken;
        while (auto lease = table.take_any(owner))
          taken.insert(lease->object);
        CHECK(taken == expected);
        break;
      }
    }
    uint64_t writes = 0;
    for (auto& [id, lease] : model)
      writes += lease.what == kind::write;
    REQUIRE(table.writes() == writes);
    REQUIRE(table.reads() == model.size() - writes);
  }
}
