#include "backends/eviction_policy.hpp"

#include "backends/lru_policy.hpp"
#include "backends/s3fifo_policy.hpp"
#include "messages/errc.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

using kvasir::eviction_policy;
using object_id = eviction_policy::object_id;
using reentry = eviction_policy::reentry;

namespace {

bool none_held(object_id) {
  return false;
}

/// A well-mixed hash of a key (splitmix64).
uint64_t hash_of(uint64_t key) {
  key += 0x9e3779b97f4a7c15;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
  key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
  return key ^ (key >> 31);
}

std::vector<object_id> drain(eviction_policy& uut) {
  std::vector<object_id> order;
  while (auto id = uut.victim(none_held))
    order.push_back(*id);
  return order;
}

/// A cache of objects of one size, run by a policy: key k is object number k.
struct cache {
  eviction_policy& policy;
  size_t capacity_count;
  std::set<object_id> resident{};

  /// @returns whether it was a hit.
  bool get(object_id key) {
    if (resident.contains(key)) {
      policy.touch(key);
      return true;
    }
    while (resident.size() >= capacity_count)
      resident.erase(policy.victim(none_held).value());
    policy.insert(key, 4096, hash_of(key));
    resident.insert(key);
    return false;
  }
};

} // namespace

TEST_CASE("policies are made by name, an unknown name is refused with both") {
  for (auto name : {"s3fifo", "lru"}) {
    auto policy = kvasir::make_eviction_policy(name);
    REQUIRE(policy);
    CHECK((*policy)->name() == name);
  }
  auto refused = kvasir::make_eviction_policy("arc");
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == kvasir::errc::invalid_argument);
  auto text = to_string(refused.error());
  CHECK(text.find("arc") != std::string::npos);
  CHECK(text.find("s3fifo") != std::string::npos);
}

TEST_CASE("lru evicts in the order of last use") {
  kvasir::lru_policy uut;
  for (object_id id = 0; id < 5; ++id)
    uut.insert(id, 100, hash_of(id));
  uut.touch(0);
  uut.touch(3);
  uut.remove(2);
  CHECK(drain(uut) == std::vector<object_id>{1, 4, 0, 3});
}

TEST_CASE("every policy parks held candidates and takes them back on release") {
  for (auto name : {"s3fifo", "lru"}) {
    CAPTURE(name);
    auto uut = std::move(*kvasir::make_eviction_policy(name));
    for (object_id id = 0; id < 4; ++id)
      uut->insert(id, 100, hash_of(id));
    auto queries = 0;
    auto held = [&](object_id id) {
      ++queries;
      return id < 2;
    };
    CHECK(uut->victim(held) == 2);
    CHECK(uut->parked_count() == 2);
    CHECK(uut->is_parked(0));
    CHECK(uut->is_parked(1));
    CHECK(queries == 3);
    CHECK(uut->victim(held) == 3);
    CHECK(queries == 4); // the parked ones are not walked over again
    CHECK_FALSE(uut->victim(held));
    uut->release(3); // not parked: nothing
    CHECK_FALSE(uut->victim(held));
    uut->release(1);
    uut->release(0);
    CHECK(uut->parked_count() == 0);
    CHECK(drain(*uut) == std::vector<object_id>{1, 0});
  }
}

TEST_CASE("an object that waited for its children leaves before younger ones") {
  for (auto name : {"s3fifo", "lru"}) {
    CAPTURE(name);
    auto uut = std::move(*kvasir::make_eviction_policy(name));
    constexpr object_id chain_length = 50;
    // A chain, parent first, then bystanders.
    for (object_id id = 0; id < 2 * chain_length; ++id)
      uut->insert(id, 100, hash_of(id));
    std::vector<int> children(2 * chain_length, 0);
    for (object_id id = 0; id + 1 < chain_length; ++id)
      children[id] = 1;
    auto held = [&](object_id id) {
      return children[id] > 0;
    };
    for (object_id n = chain_length; n-- > 0;) {
      REQUIRE(uut->victim(held) == n); // leaf to root
      if (n > 0 && --children[n - 1] == 0)
        uut->release(n - 1, reentry::next);
    }
    CHECK(uut->victim(held) == chain_length);
  }
}

TEST_CASE("a parked object can be removed, touched and inserted anew") {
  for (auto name : {"s3fifo", "lru"}) {
    CAPTURE(name);
    auto uut = std::move(*kvasir::make_eviction_policy(name));
    uut->insert(7, 100, hash_of(7));
    uut->insert(8, 100, hash_of(8));
    uut->park(7);
    CHECK(uut->is_parked(7));
    CHECK(uut->queued_count() == 1);
    uut->touch(7);
    uut->remove(7);
    CHECK_FALSE(uut->is_parked(7));
    CHECK(uut->parked_count() == 0);
    uut->release(7);
    CHECK(uut->queued_count() == 1);
    uut->insert(7, 100, hash_of(7));
    uut->park(7);
    uut->insert(7, 200, hash_of(7));
    CHECK(uut->parked_count() == 0);
    CHECK(drain(*uut) == std::vector<object_id>{8, 7});
  }
}

TEST_CASE("numbers that are absent do no harm") {
  for (auto name : {"s3fifo", "lru"}) {
    auto uut = std::move(*kvasir::make_eviction_policy(name));
    uut->touch(5);
    uut->remove(5000000);
    uut->park(5);
    uut->release(5);
    CHECK_FALSE(uut->is_parked(5));
    CHECK_FALSE(uut->victim(none_held));
    CHECK(uut->queued_count() == 0);
  }
}

TEST_CASE("no object is lost or doubled in a random trace") {
  for (auto name : {"s3fifo", "lru"}) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      CAPTURE(name);
      CAPTURE(seed);
      auto uut = std::move(*kvasir::make_eviction_policy(name));
      std::mt19937 rng{seed};
      std::set<object_id> present;
      std::set<object_id> held;
      auto is_held = [&](object_id id) {
        return held.contains(id);
      };
      for (auto step = 0; step < 20000; ++step) {
        auto id = static_cast<object_id>(rng() % 300);
        switch (rng() % 6) {
          case 0:
          case 1:
            uut->insert(id, rng() % 10000, hash_of(rng() % 600));
            present.insert(id);
            break;
          case 2:
            uut->touch(id);
            break;
          case 3:
            if (present.contains(id))
              held.insert(id);
            break;
          case 4:
            held.erase(id);
            uut->release(id, rng() % 2 ? reentry::recent : reentry::next);
            break;
          case 5:
            if (auto v = uut->victim(is_held)) {
              REQUIRE(present.erase(*v) == 1);
              REQUIRE_FALSE(held.contains(*v));
            }
            break;
        }
        REQUIRE(uut->queued_count() + uut->parked_count() == present.size());
      }
      for (auto id : held)
        uut->release(id);
      auto order = drain(*uut);
      CHECK(std::set<object_id>(order.begin(), order.end()) == present);
      CHECK(order.size() == present.size());
    }
  }
}

TEST_CASE("a scan does not push hot objects out of s3fifo, as it does of lru") {
  auto hot_hits_after_scan = [](eviction_policy& policy) {
    cache c{policy, 1000};
    for (auto round = 0; round < 4; ++round) {
      for (object_id key = 0; key < 500; ++key)
        c.get(key);
    }
    for (object_id key = 1000; key < 11000; ++key) // ten times the cache, each key once
      c.get(key);
    auto hits = 0;
    for (object_id key = 0; key < 500; ++key)
      hits += c.resident.contains(key);
    return hits;
  };
  kvasir::s3fifo_policy s3fifo;
  kvasir::lru_policy lru;
  CHECK(hot_hits_after_scan(s3fifo) == 500);
  CHECK(hot_hits_after_scan(lru) == 0);
}

TEST_CASE("an object that returns soon after its eviction enters the main queue") {
  kvasir::s3fifo_policy uut;
  cache c{uut, 100};
  for (object_id key = 0; key < 150; ++key)
    c.get(key); // 0..49 went through the small queue into the ghost
  for (object_id key = 0; key < 10; ++key)
    CHECK_FALSE(c.get(key));
  for (object_id key = 1000; key < 1500; ++key)
    c.get(key);
  for (object_id key = 0; key < 10; ++key)
    CHECK(c.resident.contains(key));
}

TEST_CASE("a single victim call gives a bounded number of second chances") {
  kvasir::s3fifo_policy uut;
  for (object_id id = 0; id < 5000; ++id) {
    uut.insert(id, 4096, hash_of(id));
    for (auto n = 0; n < 4; ++n)
      uut.touch(id);
  }
  // All are hot: the first 1024 get their chance, then the next one goes.
  CHECK(uut.victim(none_held) == 1024);
}

TEST_CASE("objects of no bytes are evicted too") {
  kvasir::s3fifo_policy uut;
  for (object_id id = 0; id < 10; ++id)
    uut.insert(id, 0, hash_of(id));
  CHECK(drain(uut).size() == 10);
}

TEST_CASE("the ghost forgets what left its window") {
  kvasir::ghost_table uut;
  for (uint64_t key = 0; key < 300; ++key)
    uut.add(hash_of(key), 100);
  CHECK_FALSE(uut.take(hash_of(0)));
  CHECK_FALSE(uut.take(hash_of(198)));
  CHECK(uut.take(hash_of(299)));
  CHECK_FALSE(uut.take(hash_of(299))); // taken once
}

TEST_CASE("the ghost grows without forgetting and stays within its bound") {
  kvasir::ghost_table uut;
  for (uint64_t key = 0; key < 60; ++key)
    uut.add(hash_of(key), 64);
  uut.add(hash_of(1000), 65); // a larger table takes over
  auto remembered = 0;
  for (uint64_t key = 0; key < 60; ++key)
    remembered += uut.take(hash_of(key));
  CHECK(remembered > 45); // crowded buckets forget early
  for (uint64_t key = 0; key < 3000000; ++key)
    uut.add(hash_of(key), key);
  CHECK(uut.memory_bytes() <= 12 << 20);
  uut.add(0, uint64_t{1} << 40);
  CHECK(uut.take(0));
}
