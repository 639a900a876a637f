#include "actors/worker_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using kvasir::worker_pool;
using priority = worker_pool::priority;

namespace {

/// One worker that is kept busy, so that the rest queues up behind it.
struct fixture {
  static constexpr size_t limit = 4;

  worker_pool uut{{1, limit}};
  std::promise<void> release;

  fixture() {
    std::promise<void> started;
    REQUIRE(uut.submit(priority::copy, [&, until = release.get_future().share()] {
      started.set_value();
      until.wait();
    }));
    started.get_future().wait();
  }

  ~fixture() { let_go(); }

  void let_go() {
    if (!std::exchange(released, true))
      release.set_value();
  }

  bool released = false;
};

} // namespace

TEST_CASE("work runs, and on as many threads as were asked for") {
  worker_pool uut{{3, 8}};
  std::promise<void> all_here;
  auto go = all_here.get_future().share();
  std::atomic<int> here{0};
  std::vector<std::future<void>> ended;
  for (auto i = 0; i < 3; ++i) {
    auto done = std::make_shared<std::promise<void>>();
    ended.push_back(done->get_future());
    // Each waits for the other two: fewer threads would never come to an end.
    REQUIRE(uut.submit(priority::hash, [&, done] {
      if (++here == 3)
        all_here.set_value();
      go.wait();
      done->set_value();
    }));
  }
  for (auto& end : ended)
    end.wait();
  CHECK(here == 3);
}

TEST_CASE_FIXTURE(fixture, "copies overtake hashes, and each kind keeps its order") {
  std::string order;
  std::promise<void> end;
  REQUIRE(uut.submit(priority::hash, [&] { order += 'a'; }));
  REQUIRE(uut.submit(priority::copy, [&] { order += '1'; }));
  REQUIRE(uut.submit(priority::copy, [&] { order += '2'; }));
  REQUIRE(uut.submit(priority::hash, [&] {
    order += 'b';
    end.set_value();
  }));
  CHECK(uut.queued() == 4);
  let_go();
  end.get_future().wait();
  CHECK(order == "12ab");
  CHECK(uut.queued() == 0);
}

TEST_CASE_FIXTURE(fixture, "a full queue refuses work of either kind, until there is room") {
  std::promise<void> end;
  REQUIRE(uut.submit(priority::hash, [] {}));
  REQUIRE(uut.submit(priority::copy, [] {}));
  REQUIRE(uut.submit(priority::copy, [] {}));
  REQUIRE(uut.submit(priority::hash, [&] { end.set_value(); }));
  auto owned = std::make_shared<int>();
  CHECK_FALSE(uut.submit(priority::copy, [owned] {}));
  CHECK_FALSE(uut.submit(priority::hash, [owned] {}));
  CHECK(owned.use_count() == 1);
  let_go();
  end.get_future().wait();
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
  let_go();
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
  std::promise<bool> gone;
  REQUIRE(uut.submit(priority::copy, [owned = std::move(owned)] {}));
  REQUIRE(uut.submit(priority::copy, [&] { gone.set_value(seen.expired()); }));
  CHECK(gone.get_future().get());
}
