#include "backends/hold_board.hpp"

#include "backends/hold_page.hpp"
#include "messages/errc.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

using namespace kvasir;

namespace {

slot place(uint64_t number, uint64_t generation = 1) {
  return {number * 4096, 100, generation};
}

struct fixture {
  uint64_t join() {
    auto id = board.add();
    REQUIRE(id);
    return *id;
  }

  hold_page page_of(uint64_t id) {
    auto page = hold_page::map(board.fd(id));
    REQUIRE(page);
    return std::move(*page);
  }

  std::vector<uint32_t> touched(size_t limit = SIZE_MAX) {
    std::vector<uint32_t> result;
    board.drain_touches(limit, [&](uint32_t entry) { result.push_back(entry); });
    return result;
  }

  hold_board board;
};

/// The page as an engine can scribble on it.
class scribble {
public:
  explicit scribble(int fd)
    : page(static_cast<hold_page_format::page*>(mmap(
      nullptr, sizeof(hold_page_format::page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0))) {
    REQUIRE(page != MAP_FAILED);
  }
  ~scribble() { munmap(page, sizeof(*page)); }

  hold_page_format::page* page;
};

} // namespace

TEST_CASE_FIXTURE(fixture, "a slot is held from publish to withdraw") {
  auto page = page_of(join());
  CHECK_FALSE(board.is_held(place(3)));
  auto first = page.publish(place(3));
  auto second = page.publish(place(3));
  REQUIRE(first);
  REQUIRE(second);
  CHECK(board.is_held(place(3)));
  CHECK_FALSE(board.is_held(place(4)));
  CHECK_FALSE(board.is_held(place(3, 2)));
  page.withdraw(*first);
  CHECK(board.is_held(place(3)));
  page.withdraw(*second);
  CHECK_FALSE(board.is_held(place(3)));
}

TEST_CASE_FIXTURE(fixture, "the first and the last place of the largest pool can be held") {
  auto page = page_of(join());
  for (auto where : {slot{0, 1, 0}, slot{((uint64_t{1} << 32) - 1) * 4096, 1, 0x1'ffff'fffe}}) {
    CHECK_FALSE(board.is_held(where));
    auto record = page.publish(where);
    CHECK(board.is_held(where));
    page.withdraw(*record);
    CHECK_FALSE(board.is_held(where));
  }
}

TEST_CASE_FIXTURE(fixture, "each record that there is can be used, and then no more") {
  auto page = page_of(join());
  std::vector<uint32_t> records;
  uint64_t next = 0;
  // Slots of all groups fill all groups and the spill in the end.
  for (auto refused = 0; refused < 5000; ++next) {
    auto record = page.publish(place(next));
    if (!record)
      ++refused;
    else
      records.push_back(*record);
    REQUIRE(board.is_held(place(next)) == record.has_value());
  }
  CHECK(records.size() == hold_page_format::record_count);
  CHECK(std::set<uint32_t>{records.begin(), records.end()}.size() == records.size());
  for (auto record : records)
    page.withdraw(record);
  for (uint64_t i = 0; i < next; ++i)
    REQUIRE_FALSE(board.is_held(place(i)));
  CHECK(page.publish(place(1)));
}

TEST_CASE_FIXTURE(fixture,
                  "what an engine holds ends when it is removed, others' holds do not") {
  auto first = join();
  auto second = join();
  CHECK(first != second);
  auto one = page_of(first);
  auto two = page_of(second);
  one.publish(place(1));
  one.publish(place(2));
  two.publish(place(2));
  board.remove(first);
  CHECK(board.fd(first) == -1);
  CHECK_FALSE(board.is_held(place(1)));
  CHECK(board.is_held(place(2)));
  one.publish(place(3)); // It may not know yet.
  CHECK_FALSE(board.is_held(place(3)));
  board.remove(first);
  CHECK(board.engines() == 1);
}

TEST_CASE_FIXTURE(fixture, "there is a limit to engines") {
  for (size_t i = 0; i < hold_board::max_engines; ++i)
    join();
  auto more = board.add();
  REQUIRE(!more);
  CHECK(more.error() == errc::busy);
  board.remove(7);
  CHECK(board.add());
}

TEST_CASE_FIXTURE(fixture,
                  "touches arrive in order, engine after engine, as many as asked for") {
  auto first = page_of(join());
  auto second = page_of(join());
  CHECK(touched().empty());
  for (uint32_t i = 0; i < 5; ++i)
    first.touch(i);
  second.touch(UINT32_MAX - 1);
  CHECK(touched(2) == std::vector<uint32_t>{UINT32_MAX - 1, 0}); // The second one's turn.
  CHECK(touched() == std::vector<uint32_t>{1, 2, 3, 4});
  CHECK(touched().empty());
  CHECK(board.touches() == 6);
  CHECK(board.touches_overrun() == 0);
}

TEST_CASE_FIXTURE(fixture, "the oldest of too many touches are lost, and it is counted") {
  auto page = page_of(join());
  constexpr auto size = hold_page_format::ring_size;
  for (uint32_t i = 0; i < size + 10; ++i)
    page.touch(i);
  auto got = touched();
  REQUIRE(got.size() == size);
  CHECK(got.front() == 10);
  CHECK(got.back() == size + 9);
  CHECK(board.touches_overrun() == 1);
}

TEST_CASE_FIXTURE(fixture,
                  "whatever an engine writes into its page costs no more than its size") {
  auto id = join();
  scribble written{board.fd(id)};
  auto& page = *written.page;
  std::mt19937_64 random{1};
  for (auto round = 0; round < 300; ++round) {
    auto extreme = [&] {
      switch (random() % 4) {
        case 0:
          return uint64_t{0};
        case 1:
          return UINT64_MAX;
        case 2:
          return random() % 5000;
        default:
          return static_cast<uint64_t>(random());
      }
    };
    for (auto& record : page.records)
      record = extreme();
    for (auto& entry : page.ring)
      entry = extreme();
    page.spill_used = extreme();
    page.touched = extreme();
    page.magic = extreme();
    CHECK(touched().size() <= hold_page_format::ring_size);
    board.is_held(place(random() % 5000, extreme()));
  }
  page.touched = 0;
  CHECK(touched().size() <= hold_page_format::ring_size);
  board.remove(id);
  CHECK_FALSE(board.is_held(place(1)));
}

TEST_CASE_FIXTURE(fixture, "the page cannot be truncated, nor another file be mapped for it") {
  auto id = join();
  CHECK(ftruncate(board.fd(id), 0) != 0);
  CHECK(ftruncate(board.fd(id), 1 << 20) != 0);
  {
    scribble written{board.fd(id)};
    written.page->version = 9;
    CHECK(!hold_page::map(board.fd(id)));
    written.page->version = hold_page_format::version;
    written.page->magic = 9;
    CHECK(!hold_page::map(board.fd(id)));
  }
  CHECK(!hold_page::map(-1));
  auto other = memfd_create("other", MFD_ALLOW_SEALING);
  CHECK(!hold_page::map(other));
  close(other);
}

TEST_CASE_FIXTURE(fixture,
                  "threads of one engine never get one record, and no hold is missed") {
  auto page = page_of(join());
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t n = 0; n < 3; ++n)
    threads.emplace_back([&, n] {
      std::mt19937_64 random{n};
      std::vector<std::pair<uint32_t, slot>> held;
      for (auto i = 0; i < 3000; ++i) {
        slot where{4096 * (random() % 20), 1, n}; // Of this thread only, in crowded groups.
        if (auto record = page.publish(where))
          held.emplace_back(*record, where);
        for (auto& each : held)
          wrong += !board.is_held(each.second);
        if (held.size() > 30) {
          page.withdraw(held.back().first);
          held.pop_back();
          std::swap(held[random() % held.size()], held.back());
          page.withdraw(held.back().first);
          held.pop_back();
        }
        page.touch(static_cast<uint32_t>(i));
      }
      for (auto& each : held)
        page.withdraw(each.first);
    });
  for (auto& thread : threads)
    thread.join();
  CHECK(wrong == 0);
  for (uint64_t n = 0; n < 3; ++n)
    for (uint64_t i = 0; i < 20; ++i)
      CHECK_FALSE(board.is_held({4096 * i, 1, n}));
}
