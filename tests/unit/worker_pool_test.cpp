#include "actors/worker_pool.hpp"

#include "support/one_shot.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

using kvasir::worker_pool;
using kvasir::test::one_shot;
using priority = worker_pool::priority;

namespace {

/// One worker that is kept busy, so that the rest queues up behind it.
struct fixture {
  static constexpr size_t limit = 4;

  one_shot started;
  one_shot let_go;
  worker_pool uut{{1, limit}};

  fixture() {
    REQUIRE(uut.submit(priority::copy, [this] {
      started.raise();
      let_go.wait();
    }));
    REQUIRE(started.wait());
  }

  ~fixture() { let_go.raise(); }
};

} // namespace

TEST_CASE("work runs, and on as many threads as were asked for") {
  one_shot all_here;
  std::array<one_shot, 3> ended;
  std::atomic<int> here{0};
  worker_pool uut{{3, 8}};
  for (auto& end : ended)
    // Each waits for the other two: fewer threads would never come to an end.
    REQUIRE(uut.submit(priority::hash, [&] {
      if (++here == 3)
        all_here.raise();
      all_here.wait();
      end.raise();
    }));
  for (auto& end : ended)
    REQUIRE(end.wait());
  CHECK(here == 3);
}

TEST_CASE_FIXTURE(fixture, "copies overtake hashes, and each kind keeps its order") {
  std::string order;
  one_shot end;
  REQUIRE(uut.submit(priority::hash, [&] { order += 'a'; }));
  REQUIRE(uut.submit(priority::copy, [&] { order += '1'; }));
  REQUIRE(uut.submit(priority::copy, [&] { order += '2'; }));
  REQUIRE(uut.submit(priority::hash, [&] {
    order += 'b';
    end.raise();
  }));
  CHECK(uut.queued() == 4);
  let_go.raise();
  REQUIRE(end.wait());
  CHECK(order == "12ab");
  CHECK(uut.queued() == 0);
}

TEST_CASE_FIXTURE(fixture, "a full queue refuses work of either kind, until there is room") {
  one_shot end;
  REQUIRE(uut.submit(priority::hash, [] {}));
  REQUIRE(uut.submit(priority::copy, [] {}));
  REQUIRE(uut.submit(priority::copy, [] {}));
  REQUIRE(uut.submit(priority::hash, [&] { end.raise(); }));
  auto owned = std::make_shared<int>();
  CHECK_FALSE(uut.submit(priority::copy, [owned] {}));
  CHECK_FALSE(uut.submit(priority::hash, [owned] {}));
  CHECK(owned.use_count() == 1);
  let_go.raise();
  REQUIRE(end.wait());
  CHECK(uut.submit(priority::copy, [] {}));
}

TEST_CASE_FIXTURE(fixture, "the end waits for the work under way and drops what is queued") {
  auto owned = std::make_shared<int>();
  auto ran = false;
  REQUIRE(uut.submit(priority::copy, [owned, &ran] { ran = true; }));
  REQUIRE(uut.submit(priority::hash, [owned, &ran] { ran = true; }));
  auto stopped = std::async(std::launch::async, [&] { uut.stop(); });
  while (uut.queued() > 0) // The first thing that stopping does.
    std::this_thread::yield();
  CHECK(stopped.wait_for(std::chrono::seconds{0}) == std::future_status::timeout);
  let_go.raise();
  stopped.wait();
  CHECK_FALSE(ran);
  CHECK(owned.use_count() == 1);
  CHECK_FALSE(uut.submit(priority::copy, [] {}));
  uut.stop();
}

TEST_CASE("what a work holds ends before the next one starts") {
  worker_pool uut{{1, 4}};
  auto owned = std::make_shared<int>();
  std::weak_ptr<int> seen = owned;
  one_shot second;
  auto gone = false;
  REQUIRE(uut.submit(priority::copy, [owned = std::move(owned)] {}));
  REQUIRE(uut.submit(priority::copy, [&] {
    gone = seen.expired();
    second.raise();
  }));
  REQUIRE(second.wait());
  CHECK(gone);
}
