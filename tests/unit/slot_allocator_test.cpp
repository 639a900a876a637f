#include "backends/slot_allocator.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

using kvasir::slot_allocator;

namespace {

constexpr uint64_t page = slot_allocator::page_bytes;
constexpr uint64_t mib = 1 << 20;

/// Used ranges by offset: what any allocator must agree with.
struct reference_model {
  std::map<uint64_t, slot_allocator::block> used;
  uint64_t used_bytes = 0;

  /// False if the block overlaps another or leaves the usable range.
  bool add(const slot_allocator::block& b, uint64_t usable_bytes) {
    auto next = used.lower_bound(b.offset_bytes);
    if (b.offset_bytes + b.size_bytes > usable_bytes
        || (next != used.end() && next->first < b.offset_bytes + b.size_bytes))
      return false;
    if (next != used.begin()) {
      auto& previous = std::prev(next)->second;
      if (previous.offset_bytes + previous.size_bytes > b.offset_bytes)
        return false;
    }
    used.emplace(b.offset_bytes, b);
    used_bytes += b.size_bytes;
    return true;
  }

  slot_allocator::block remove(size_t nth) {
    auto i = std::next(used.begin(), static_cast<std::ptrdiff_t>(nth));
    auto b = i->second;
    used.erase(i);
    used_bytes -= b.size_bytes;
    return b;
  }
};

} // namespace

TEST_CASE("nothing can be allocated before the range is extended") {
  slot_allocator uut{mib};
  CHECK(uut.capacity_bytes() == mib);
  CHECK(uut.usable_bytes() == 0);
  CHECK(uut.largest_free_bytes() == 0);
  CHECK_FALSE(uut.allocate(1));
  CHECK(uut.valid());
}

TEST_CASE("an odd capacity is rounded down to whole pages") {
  CHECK(slot_allocator{104857601}.capacity_bytes() == 104857600);
  slot_allocator uut{page - 1};
  CHECK(uut.capacity_bytes() == 0);
  uut.extend(mib);
  CHECK(uut.usable_bytes() == 0);
  CHECK_FALSE(uut.allocate(1));
}

TEST_CASE("an odd pool holds as many odd chunks as fit") {
  slot_allocator uut{104857601};
  uut.extend(104857601);
  auto count = 0;
  while (uut.allocate(17989632))
    ++count;
  CHECK(count == 5);
  CHECK(uut.valid());
}

TEST_CASE("a request of no bytes takes a page of its own") {
  slot_allocator uut{2 * page};
  uut.extend(2 * page);
  auto a = uut.allocate(0);
  auto b = uut.allocate(0);
  REQUIRE(a);
  REQUIRE(b);
  CHECK(a->size_bytes == page);
  CHECK(a->offset_bytes != b->offset_bytes);
  CHECK_FALSE(uut.allocate(0));
}

TEST_CASE("requests of any size, up to the largest number, are answered") {
  slot_allocator uut{mib};
  uut.extend(mib);
  CHECK_FALSE(uut.allocate(std::numeric_limits<uint64_t>::max()));
  CHECK_FALSE(uut.allocate(mib + 1));
  CHECK(uut.allocate(mib));
  CHECK(uut.valid());
  // More than 2^32 - 1 pages cannot be addressed.
  CHECK(slot_allocator{std::numeric_limits<uint64_t>::max()}.capacity_bytes()
        == uint64_t{0xffffffff} * page);
}

TEST_CASE("rounding to a size class costs at most 1.6 percent and a page") {
  std::minstd_rand rng{7};
  for (uint64_t size = 1; size < (uint64_t{1} << 40); size += 1 + rng() % (size / 50 + 2)) {
    auto rounded = slot_allocator::rounded_bytes(size);
    REQUIRE(rounded >= size);
    REQUIRE(rounded % page == 0);
    REQUIRE(rounded - size < page + size / 64 + 1);
    REQUIRE(slot_allocator::rounded_bytes(rounded) == rounded);
  }
}

TEST_CASE("the largest free size is one that can be allocated") {
  slot_allocator uut{64 * mib};
  uut.extend(37 * mib + 5 * page);
  auto largest = uut.largest_free_bytes();
  CHECK(largest >= 36 * mib);
  CHECK(uut.allocate(largest));
}

TEST_CASE("extending joins a free end and keeps used blocks where they are") {
  slot_allocator uut{8 * mib};
  uut.extend(mib);
  uut.extend(2 * mib);
  auto a = uut.allocate(2 * mib);
  REQUIRE(a); // only one run can hold it
  uut.extend(mib);
  CHECK(uut.usable_bytes() == 2 * mib);
  uut.extend(4 * mib);
  auto b = uut.allocate(2 * mib);
  REQUIRE(b);
  CHECK(b->offset_bytes == 2 * mib);
  CHECK(uut.valid());
  uut.extend(100 * mib);
  CHECK(uut.usable_bytes() == 8 * mib);
  CHECK(uut.valid());
}

TEST_CASE("the nearest used neighbours are found, also behind a free run") {
  slot_allocator uut{3 * mib};
  uut.extend(3 * mib);
  auto a = uut.allocate(mib);
  auto b = uut.allocate(mib);
  auto c = uut.allocate(mib);
  REQUIRE(c);
  CHECK_FALSE(uut.used_before(a->handle));
  CHECK(uut.used_after(a->handle) == b->handle);
  CHECK(uut.used_before(c->handle) == b->handle);
  CHECK_FALSE(uut.used_after(c->handle));
  CHECK(uut.at(b->handle) == *b);
  uut.free(b->handle);
  CHECK(uut.used_after(a->handle) == c->handle);
  CHECK(uut.used_before(c->handle) == a->handle);
  uut.free(c->handle);
  CHECK_FALSE(uut.used_after(a->handle));
}

TEST_CASE("a freed block always serves the same size again") {
  slot_allocator uut{256 * mib};
  uut.extend(256 * mib);
  std::mt19937_64 rng{42};
  struct owned {
    slot_allocator::block where;
    uint64_t requested_bytes;
  };
  std::vector<owned> blocks;
  for (;;) {
    auto size = 1 + rng() % (uint64_t{1} << (12 + rng() % 12));
    auto b = uut.allocate(size);
    if (!b)
      break;
    blocks.push_back({*b, size});
  }
  for (auto step = 0; step < 20000; ++step) {
    auto& victim = blocks[rng() % blocks.size()];
    uut.free(victim.where.handle);
    auto again = uut.allocate(victim.requested_bytes);
    REQUIRE(again);
    victim.where = *again;
  }
  CHECK(uut.valid());
}

TEST_CASE("a random trace agrees with a reference model and coalesces fully in the end") {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 rng{seed};
    slot_allocator uut{96 * mib};
    reference_model model;
    for (auto step = 0; step < 6000; ++step) {
      auto dice = rng() % 100;
      if (dice < 2) {
        uut.extend(uut.usable_bytes() + rng() % (2 * mib));
      } else if (dice < 53 || model.used.empty()) {
        auto size = rng() % (uint64_t{1} << (10 + rng() % 13));
        if (auto b = uut.allocate(size)) {
          REQUIRE(b->size_bytes == slot_allocator::rounded_bytes(size));
          REQUIRE(model.add(*b, uut.usable_bytes()));
        } else {
          REQUIRE(uut.largest_free_bytes() < slot_allocator::rounded_bytes(size));
        }
      } else {
        uut.free(model.remove(rng() % model.used.size()).handle);
      }
      REQUIRE(uut.used_bytes() == model.used_bytes);
      REQUIRE(uut.used_count() == model.used.size());
      if (step % 16 == 0)
        REQUIRE(uut.valid());
    }
    while (!model.used.empty())
      uut.free(model.remove(rng() % model.used.size()).handle);
    CHECK(uut.used_bytes() == 0);
    CHECK(uut.valid());
    auto whole = uut.allocate(uut.largest_free_bytes());
    REQUIRE(whole);
    CHECK(whole->offset_bytes == 0);
    CHECK(whole->size_bytes > uut.usable_bytes() / 65 * 64);
  }
}
