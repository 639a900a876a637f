#include "support/io_fixture.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

/// How units and the tasks on them begin and end, also in the middle of work.

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// Asks as fast as it can until its unit stops.
struct hammer final : io_task {
  hammer(io_unit& the_unit, probe_actor the_actor, one_shot& is_warm)
    : unit(the_unit),
      actor(std::move(the_actor)),
      warm(is_warm) {}

  void run() override {
    for (auto i = 0; i < 8 && !list.pending(); ++i) {
      if (asked > 0 && (!list || list.value.next_cursor != asked))
        ++wrong;
      unit.request(actor, list_objects{asked}, list, 60s);
      if (++asked == 200)
        warm.raise();
    }
    if (!list.pending()) // Otherwise the answer schedules it.
      unit.schedule(*this);
  }

  io_unit& unit;
  probe_actor actor;
  one_shot& warm;
  io_reply<object_list> list{unit, *this};
  uint64_t asked = 0;
  uint64_t wrong = 0;
};

struct unit_fixture : io_fixture {
  unit_fixture() {
    unit.run_inline(actor);
    unit.start();
  }
  ~unit_fixture() {
    unit.stop();
    end(actor);
  }

  probe_actor actor = spawn();
  io_unit unit{system};
};

} // namespace

TEST_CASE("units that are stopped in the middle of load leave no actor and no thread behind") {
  // 100 systems with 10 pairs of units each; a pair shares one actor.
  for (auto round = 0; round < 100; ++round) {
    io_fixture fix;
    for (auto i = 0; i < 10; ++i) {
      fix.record = std::make_shared<probe_record>();
      auto actor = fix.spawn();
      std::array<one_shot, 2> warm;
      {
        io_unit first{fix.system};
        io_unit second{fix.system};
        hammer one{first, actor, warm[0]};
        hammer two{second, actor, warm[1]};
        for (auto [unit, task] : {std::pair{&first, &one}, std::pair{&second, &two}}) {
          unit->run_inline(actor);
          unit->start();
          unit->post([unit = unit, task = task] { unit->schedule(*task); });
        }
        REQUIRE(warm[static_cast<size_t>(i % 2)].wait());
        (i % 2 == 0 ? first : second).stop();
        (i % 2 == 0 ? second : first).stop();
        CHECK(one.wrong + two.wrong == 0);
        CHECK_FALSE(one.list.pending());
        CHECK_FALSE(two.list.pending());
      }
      io_fixture::end(actor);
      CHECK_FALSE(fix.record->overlapped);
    }
  } // The system waits for all its actors here: a lost one would hang the test.
}

TEST_CASE("a unit may be stopped twice, without having been started, and just started") {
  io_fixture fix;
  { io_unit unused{fix.system}; }
  io_unit unit{fix.system};
  unit.stop();
  unit.stop();
  for (auto i = 0; i < 100; ++i) {
    io_unit quick{fix.system};
    quick.start();
  }
}

TEST_CASE_FIXTURE(unit_fixture, "stopping fails the requests that wait") {
  probe_task task;
  auto reply = std::make_unique<io_reply<pressure>>(unit, task);
  on_unit(unit, [&] { unit.request(actor, check_pressure{}, *reply, 60s); });
  unit.stop();
  CHECK_FALSE(reply->pending());
  CHECK(reply->error() == errc::peer_unreachable);
  open_gate(actor); // Its answer finds nobody, and harms nobody.
}

TEST_CASE_FIXTURE(unit_fixture, "jobs run in the order in which they were posted") {
  std::vector<int> order;
  one_shot done;
  for (auto i = 0; i < 100; ++i)
    unit.post([&, i] { order.push_back(i); });
  unit.post([&] { done.raise(); });
  REQUIRE(done.wait());
  for (auto i = 0; i < 100; ++i)
    CHECK(order[static_cast<size_t>(i)] == i);
}

TEST_CASE_FIXTURE(unit_fixture, "a job posted after the stop is destroyed unrun") {
  unit.stop();
  auto token = std::make_shared<int>(1);
  auto ran = false;
  unit.post([token, &ran] { ran = true; });
  CHECK_FALSE(ran);
  CHECK(token.use_count() == 1);
}

TEST_CASE("a job that never ran is destroyed at the stop, and may post as it goes") {
  io_fixture fix;
  io_unit unit{fix.system}; // Not started.
  struct poster {
    io_unit& unit;
    bool& ended;
    ~poster() {
      unit.post([] {});
      ended = true;
    }
  };
  auto ended = false;
  unit.post([held = std::make_shared<poster>(unit, ended)] {});
  unit.stop();
  CHECK(ended);
}

TEST_CASE_FIXTURE(unit_fixture, "what was posted before the start runs after it") {
  io_unit late{system};
  one_shot ran;
  late.post([&] { ran.raise(); });
  late.start();
  CHECK(ran.wait());
}

TEST_CASE_FIXTURE(unit_fixture, "a retired task is not run again, and ends with the round") {
  auto runs = 0;
  auto ends = 0;
  auto make = [&] {
    auto task = std::make_unique<probe_task>([&] { ++runs; });
    task->on_end = [&] {
      ++ends;
    };
    return task;
  };
  SUBCASE("scheduled before") {
    on_unit(unit, [&] {
      auto task = make();
      unit.schedule(*task);
      unit.retire(std::move(task));
    });
  }
  SUBCASE("scheduled after") {
    on_unit(unit, [&] {
      auto task = make();
      auto raw = task.get();
      unit.retire(std::move(task));
      unit.schedule(*raw);
    });
  }
  SUBCASE("by another task of the same round") {
    auto victim = make();
    auto raw = victim.get();
    probe_task killer{[&] {
      if (victim)
        unit.retire(std::move(victim));
    }};
    on_unit(unit, [&] {
      unit.schedule(killer);
      unit.schedule(*raw);
    });
    on_unit(unit, [] {});
  }
  SUBCASE("by itself, after it scheduled itself") {
    std::unique_ptr<probe_task> task = make();
    auto raw = task.get();
    raw->on_run = [&] {
      unit.schedule(*raw);
      unit.retire(std::move(task));
    };
    on_unit(unit, [&] { unit.schedule(*raw); });
    on_unit(unit, [] {});
  }
  on_unit(unit, [&] {
    CHECK(runs == 0);
    CHECK(ends == 1);
  });
}

TEST_CASE_FIXTURE(unit_fixture,
                  "an answer to a task that is about to be destroyed is dropped") {
  // The first one's end opens the gate for the second, which retired in the same round.
  on_unit(unit, [&] {
    struct waiting final : io_task {
      waiting(io_unit& unit) : reply(unit, *this) {}
      void run() override { std::abort(); }
      io_reply<pressure> reply;
    };
    auto second = std::make_unique<waiting>(unit);
    unit.request(actor, check_pressure{}, second->reply, 60s);
    CHECK(second->reply.pending());
    auto first = std::make_unique<probe_task>();
    first->on_end = [&] {
      unit.send(actor, pool_grown{0, false});
    };
    unit.retire(std::move(first));
    unit.retire(std::move(second));
  });
  for (auto i = 0; i < 3; ++i)
    on_unit(unit, [] {});
}

TEST_CASE_FIXTURE(unit_fixture, "a task's end may retire other tasks") {
  auto ends = 0;
  on_unit(unit, [&] {
    auto first = std::make_unique<probe_task>();
    first->on_end = [&] {
      ++ends;
      for (auto i = 0; i < 10; ++i) {
        auto next = std::make_unique<probe_task>();
        next->on_end = [&] {
          ++ends;
        };
        unit.retire(std::move(next));
      }
    };
    unit.retire(std::move(first));
  });
  on_unit(unit, [&] { CHECK(ends == 11); });
}

TEST_CASE_FIXTURE(unit_fixture,
                  "ready sockets run their task once per round, until unwatched") {
  auto fd = eventfd(0, EFD_NONBLOCK);
  REQUIRE(fd >= 0);
  one_shot ran;
  probe_task task{[&] {
    ran.raise();
  }};
  on_unit(unit, [&] { CHECK(unit.watch(fd, EPOLLIN, task)); });
  const uint64_t one = 1;
  REQUIRE(write(fd, &one, sizeof(one)) == sizeof(one));
  REQUIRE(ran.wait());
  on_unit(unit, [&] {
    CHECK(task.events == EPOLLIN);
    CHECK(task.runs == 1);
    unit.unwatch(fd);
  });
  REQUIRE(write(fd, &one, sizeof(one)) == sizeof(one));
  on_unit(unit, [] {});
  on_unit(unit, [&] { CHECK(task.runs == 1); });
  close(fd);
}

TEST_CASE_FIXTURE(unit_fixture, "a descriptor that cannot be watched is refused") {
  probe_task task;
  on_unit(unit, [&] {
    CHECK_FALSE(unit.watch(-1, EPOLLIN, task));
    auto null = open("/dev/null", O_RDONLY);
    CHECK_FALSE(unit.watch(null, EPOLLIN, task)); // Always ready: epoll does not take it.
    close(null);
  });
}

TEST_CASE_FIXTURE(unit_fixture, "a task that retired in this round is told of no more events") {
  auto fds = std::array{eventfd(1, EFD_NONBLOCK), eventfd(1, EFD_NONBLOCK)};
  std::array<std::unique_ptr<probe_task>, 2> tasks;
  auto runs = 0;
  for (size_t i = 0; i < 2; ++i)
    tasks[i] = std::make_unique<probe_task>([&, i] {
      ++runs;
      if (tasks[1 - i]) {
        unit.unwatch(fds[1 - i]);
        unit.retire(std::move(tasks[1 - i]));
      }
    });
  on_unit(unit, [&] {
    for (size_t i = 0; i < 2; ++i)
      CHECK(unit.watch(fds[i], EPOLLIN, *tasks[i]));
  });
  on_unit(unit, [] {});
  on_unit(unit, [&] {
    CHECK(runs == 1); // Both were ready, one survived.
    CHECK((tasks[0] == nullptr) != (tasks[1] == nullptr));
    for (size_t i = 0; i < 2; ++i)
      unit.unwatch(fds[i]);
  });
  unit.stop();
  for (auto fd : fds)
    close(fd);
}

#if !defined(__SANITIZE_THREAD__) // Forks, then starts threads.
TEST_CASE("a task that throws ends the process: nobody knows what it left half done") {
  auto child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    std::signal(SIGABRT, SIG_DFL); // doctest has its own handler.
    unit_fixture fix;
    probe_task task{[] {
      throw std::runtime_error{"a bug"};
    }};
    fix.unit.post([&] { fix.unit.schedule(task); });
    one_shot never;
    never.wait();
    _exit(0);
  }
  auto status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}
#endif
