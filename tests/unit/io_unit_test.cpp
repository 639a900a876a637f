#include "actors/io_unit.hpp"

#include "actors/storage_manager.hpp"
#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "support/io_fixture.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

/// Asking actors from a unit's thread: where the answer comes from, and when.

using namespace kvasir;
using namespace kvasir::test;

namespace {

struct asking_fixture : io_fixture {
  asking_fixture() {
    unit.run_inline(actor);
    unit.start();
    on_unit(unit, [this] { unit_thread = std::this_thread::get_id(); });
  }

  ~asking_fixture() {
    on_unit(unit, [this] { answer.reset(); });
    unit.stop();
    end(actor);
  }

  const io_unit_counters& counters() const { return unit.counters(); }

  one_shot gate_opened;
  probe_actor actor = spawn({}, [this] { gate_opened.raise(); });
  io_unit unit{system};
  std::thread::id unit_thread;
  one_shot told; ///< The task was told of an answer.
  probe_task task{[this] {
    told.raise();
  }};
  std::unique_ptr<io_reply<pressure>> answer = std::make_unique<io_reply<pressure>>(unit, task);
};

/// Voluntary waits of all threads of CAF's own, by name and id.
std::map<std::string, uint64_t> caf_thread_switches() {
  std::map<std::string, uint64_t> result;
  for (auto& thread : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::string name;
    std::ifstream comm{thread.path() / "comm"};
    std::getline(comm, name);
    std::ifstream status{thread.path() / "status"};
    for (std::string line; std::getline(status, line);)
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0 && name.rfind("caf.", 0) == 0)
        result[name + thread.path().filename().string()] = std::stoull(line.substr(24));
  }
  return result;
}

/// The same once CAF's threads have started and gone to sleep: a clock and two workers.
std::map<std::string, uint64_t> settled_caf_thread_switches() {
  auto deadline = std::chrono::steady_clock::now() + 20s;
  for (auto last = caf_thread_switches();;) {
    std::this_thread::sleep_for(50ms);
    auto next = caf_thread_switches();
    if ((next.size() >= 3 && next == last) || std::chrono::steady_clock::now() >= deadline)
      return next;
    last = next;
  }
}

} // namespace

TEST_CASE_FIXTURE(asking_fixture, "the answer is there when request returns") {
  on_unit(unit, [&] {
    io_reply<object_list> list{unit, task};
    CHECK_FALSE(list.pending());
    unit.request(actor, list_objects{41}, list, 1s);
    CHECK_FALSE(list.pending());
    CHECK(static_cast<bool>(list));
    CHECK(list.value.next_cursor == 42);
    io_reply<void> health{unit, task};
    unit.request(actor, check_health{}, health, 1s);
    CHECK(static_cast<bool>(health));
  });
  CHECK(counters().requests == 2);
  CHECK(counters().inline_resumes == 2);
  CHECK(counters().scheduler_enqueues == 0);
  CHECK(counters().foreign_replies == 0);
  CHECK(record->seen() == std::set{unit_thread});
  CHECK_FALSE(told.raised()); // Who has the answer already is not scheduled for it.
}

TEST_CASE_FIXTURE(asking_fixture, "an error is an answer, and the next one replaces it") {
  on_unit(unit, [&] {
    io_reply<object_list> list{unit, task};
    unit.request(actor, list_objects{UINT64_MAX}, list, 1s);
    CHECK_FALSE(static_cast<bool>(list));
    CHECK(list.error() == errc::not_found);
    unit.request(actor, list_objects{1}, list, 1s);
    CHECK(static_cast<bool>(list));
    CHECK(list.value.next_cursor == 2);
  });
}

TEST_CASE_FIXTURE(asking_fixture, "an answer that comes later schedules its task") {
  on_unit(unit, [&] {
    unit.request(actor, check_pressure{}, *answer, 60s);
    CHECK(answer->pending());
    CHECK_FALSE(static_cast<bool>(*answer));
  });
  CHECK_FALSE(told.raised());
  SUBCASE("from the unit itself") {
    on_unit(unit, [&] { unit.send(actor, pool_grown{0, false}); });
  }
  SUBCASE("from another thread") {
    open_gate(actor);
  }
  REQUIRE(told.wait());
  on_unit(unit, [&] {
    CHECK(static_cast<bool>(*answer));
    CHECK(answer->value.requests_wait);
    CHECK(task.runs == 1);
  });
  CHECK(counters().timed_out == 0);
}

TEST_CASE("an actor that another unit runs answers through the inbox, on its own terms") {
  io_fixture fix;
  one_shot entered;
  one_shot leave;
  auto actor = fix.spawn([&] {
    entered.raise();
    leave.wait();
  });
  io_unit first{fix.system};
  io_unit second{fix.system};
  for (auto unit : {&first, &second}) {
    unit->run_inline(actor);
    unit->start();
  }
  one_shot told;
  std::thread::id told_on;
  probe_task task{[&] {
    told_on = std::this_thread::get_id();
    told.raise();
  }};
  probe_task other_task;
  io_reply<exist_result> slow{second, other_task};
  io_reply<object_list> list{first, task};
  second.post([&] { second.request(actor, check_exist{}, slow, 60s); });
  REQUIRE(entered.wait());
  io_fixture::on_unit(first, [&] {
    first.request(actor, list_objects{1}, list, 60s);
    CHECK(list.pending()); // The other unit is in the middle of a handler.
  });
  CHECK(first.counters().inline_resumes == 0);
  leave.raise();
  REQUIRE(told.wait());
  io_fixture::on_unit(first, [&] {
    CHECK(list.value.next_cursor == 2);
    CHECK(told_on == std::this_thread::get_id());
  });
  CHECK(first.counters().foreign_replies == 1);
  CHECK(first.counters().scheduler_enqueues == 0);
  io_fixture::on_unit(second, [&] { CHECK(static_cast<bool>(slow)); });
  CHECK_FALSE(fix.record->overlapped);
  first.stop();
  second.stop();
  io_fixture::end(actor);
}

TEST_CASE_FIXTURE(asking_fixture, "a dead receiver answers with an error at once") {
  one_shot down;
  actor->attach_functor([&] { down.raise(); });
  end(actor);
  REQUIRE(down.wait());
  on_unit(unit, [&] {
    io_reply<object_list> list{unit, task};
    unit.request(actor, list_objects{1}, list, 60s);
    CHECK_FALSE(list.pending());
    CHECK(list.error() != caf::none);
    CHECK(list.error() != errc::timed_out);
    unit.send(actor, pool_grown{0, false}); // Harmless.
  });
}

TEST_CASE("an actor that is not named inline never runs on a unit's thread") {
  io_fixture fix;
  auto foreign = fix.spawn();
  io_unit unit{fix.system};
  unit.start();
  std::atomic<uint64_t> answered{0};
  one_shot all;
  std::unique_ptr<io_reply<object_list>> reply;
  std::unique_ptr<probe_task> task;
  std::thread::id unit_thread;
  io_fixture::on_unit(unit, [&] {
    unit_thread = std::this_thread::get_id();
    task = std::make_unique<probe_task>([&] {
      if (reply->pending())
        return;
      if (++answered == 1000)
        all.raise();
      else
        unit.request(foreign, list_objects{1}, *reply, 60s);
    });
    reply = std::make_unique<io_reply<object_list>>(unit, *task);
    unit.request(foreign, list_objects{1}, *reply, 60s);
  });
  REQUIRE(all.wait());
  io_fixture::on_unit(unit, [&] { reply.reset(); });
  CHECK_FALSE(fix.record->seen().contains(unit_thread));
  CHECK(unit.counters().inline_resumes == 0);
  CHECK(unit.counters().scheduler_enqueues > 0);
  CHECK(unit.counters().foreign_replies == 1000);
  unit.stop();
  io_fixture::end(foreign);
}

TEST_CASE_FIXTURE(asking_fixture, "an actor that used up its quantum goes to the scheduler") {
  on_unit(unit, [&] { unit.send(actor, pool_grown{2 * io_unit::quantum, false}); });
  REQUIRE(gate_opened.wait());
  CHECK(counters().inline_resumes == 1);
  CHECK(counters().scheduler_enqueues == 1);
  CHECK(record->count() == 2 * io_unit::quantum + 1);
  CHECK(record->seen().size() == 2);
  CHECK_FALSE(record->overlapped);
}

TEST_CASE_FIXTURE(asking_fixture,
                  "a deadline that passes is the answer, what comes late is dropped") {
  on_unit(unit, [&] { unit.request(actor, check_pressure{}, *answer, 1ms); });
  REQUIRE(told.wait());
  on_unit(unit, [&] {
    CHECK(answer->error() == errc::timed_out);
    CHECK(task.runs == 1);
    // The same reply, and probably the same seat, wait for another answer now.
    io_reply<object_list> list{unit, task};
    unit.send(actor, pool_grown{0, false});
    CHECK(answer->error() == errc::timed_out);
    unit.request(actor, list_objects{6}, list, 60s);
    CHECK(list.value.next_cursor == 7);
    unit.request(actor, check_pressure{}, *answer, 60s);
    CHECK(answer->pending());
    unit.send(actor, pool_grown{0, false});
    CHECK(static_cast<bool>(*answer));
  });
  CHECK(counters().timed_out == 1);
}

TEST_CASE_FIXTURE(asking_fixture,
                  "a reply that is destroyed while pending forgets its answer") {
  on_unit(unit, [&] {
    for (auto i = 0; i < 100; ++i) {
      io_reply<pressure> gone{unit, task};
      unit.request(actor, check_pressure{}, gone, 60s);
      CHECK(gone.pending());
    }
    unit.request(actor, check_pressure{}, *answer, 60s);
    unit.send(actor, pool_grown{0, false});
    CHECK(static_cast<bool>(*answer));
  });
  REQUIRE(told.wait());
  on_unit(unit, [&] { CHECK(task.runs == 1); });
}

TEST_CASE("a hundred thousand requests wake up no thread and move no clock") {
  io_fixture fix;
  auto tier = std::make_unique<pool_tier>(1 << 20, std::move(*make_eviction_policy("s3fifo")));
  auto manager = fix.system.spawn<storage_manager, caf::lazy_init>(
    std::move(tier), storage_manager_options{1 << 18, 1 << 19, 1 << 19, 64});
  io_unit unit{fix.system};
  unit.run_inline(manager);
  unit.start();
  io_fixture::on_unit(unit, [&] {
    unit.send(manager, pool_grown{1 << 20, true});
    probe_task task;
    io_reply<write_lease> write{unit, task};
    io_reply<read_lease> read{unit, task};
    io_reply<exist_result> exist{unit, task};
    auto before = settled_caf_thread_switches();
    CHECK(before.size() >= 3);
    auto wakes = unit.counters().eventfd_writes.load();
    auto wrong = 0;
    for (uint64_t i = 0; i < 25'000; ++i) {
      object_key key{std::to_string(i % 500)};
      unit.request(manager, reserve_write{1, key, {}, 4096}, write, 10s);
      wrong += !write;
      unit.send(manager, finish_write{write.value.id, i});
      unit.request(manager, check_exist{{key}}, exist, 10s);
      wrong += !exist || exist.value.found[0] != 1;
      unit.request(manager, acquire_read{1, key}, read, 10s);
      wrong += !read || read.value.checksum != i;
      unit.send(manager, release_read{read.value.id, false});
    }
    CHECK(wrong == 0);
    CHECK(unit.counters().requests == 75'000);
    CHECK(unit.counters().inline_resumes == 125'001);
    CHECK(unit.counters().eventfd_writes == wakes);
    CHECK(unit.counters().scheduler_enqueues == 0);
    CHECK(unit.counters().foreign_replies == 0);
    CHECK(unit.counters().timed_out == 0);
    // A time-out set with CAF's clock, or an actor given to its workers, would wake these.
    CHECK(caf_thread_switches() == before);
  });
  unit.stop();
  caf::anon_send_exit(manager, caf::exit_reason::user_shutdown);
}
