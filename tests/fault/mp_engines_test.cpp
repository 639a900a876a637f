// Instances that come, go, change their layout, crowd in, or outlive the server.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

TEST_CASE("an instance that leaves takes nothing from another of the same model") {
  mp_daemon served;
  mp_client first{served.mp_port()};
  mp_client second{served.mp_port()};
  chunk_range range{.prompt = 1, .last = 4};
  REQUIRE(first.enroll(1));
  REQUIRE(second.enroll(2));
  CHECK(served.sessions("layouts") == 1);
  CHECK(first.store(range));
  CHECK(first.leave().what == mp_reply::kind::nothing);
  CHECK(first.leave().what == mp_reply::kind::nothing);
  CHECK(second.exact_prefix(range) == 4);
  CHECK(second.store({.prompt = 2, .last = 4}));
  CHECK(second.exact_prefix({.prompt = 2, .last = 4}) == 4);
  CHECK(second.leave());
  CHECK(served.sessions("layouts") == 0);
  CHECK(second.lookup(range) == 0);
  CHECK_FALSE(second.store({.prompt = 3, .last = 1}));
  mp_client third{served.mp_port()};
  REQUIRE(third.enroll(3));
  CHECK(third.exact_prefix(range) == 4);
  served.wait_for_rest();
}

TEST_CASE("chunks of one layout are never given to an instance of another") {
  mp_daemon served;
  mp_client first{served.mp_port()};
  mp_client second{served.mp_port()};
  chunk_range range{.prompt = 1, .last = 4};
  REQUIRE(first.enroll(1));
  REQUIRE(first.store(range));
  mp_layout wide;
  wide.hidden = 256;
  // While the first is there, another layout of its model is refused, and said so at once.
  CHECK_FALSE(second.enroll(2, wide));
  CHECK(first.exact_prefix(range) == 4);
  // Alone it may change its own.
  REQUIRE(first.enroll(1, wide));
  CHECK(first.lookup(range) == 0);
  auto plan = first.prepare_store(range);
  REQUIRE(plan.slots.size() == 4);
  for (auto& slot : plan.slots)
    CHECK(slot.length == wide.chunk_bytes());
  // But not while slots are out that were measured by the former one.
  CHECK_FALSE(first.enroll(1, {}));
  first.leave();
  REQUIRE(first.enroll(1, wide));
  CHECK(first.store(range));
  CHECK(first.exact_prefix(range) == 4);
  first.leave();
  REQUIRE(first.enroll(1));
  CHECK(first.exact_prefix(range) == 4);
  served.wait_for_rest();
}

TEST_CASE("after a restart a worker is told so, and registering again heals it") {
  auto first = std::make_unique<mp_daemon>();
  auto port = first->mp_port();
  mp_client worker{port};
  chunk_range range{.prompt = 1, .last = 2};
  REQUIRE(worker.enroll(1));
  REQUIRE(worker.store(range));
  auto held = worker.prepare_store({.prompt = 2, .last = 1});
  REQUIRE(held.slots.size() == 1);
  auto before = worker.ping();
  auto old_pool = worker.pool;
  auto old_name = status_of(*first)["pool"]["name"].get<std::string>();
  CHECK(first->stop().exit_code == 0);
  first.reset();
  mp_daemon second{{"--mp-port", std::to_string(port)}};
  CHECK(status_of(second)["pool"]["name"] != old_name);

  // It does not know yet: all is answered, nothing is true.
  for (size_t at = 0; at < old_pool->size(); at += 4096)
    old_pool->at(at, 1)[0] = std::byte{0xaa};
  CHECK(worker.commit_store({.prompt = 2, .last = 1}).is_false());
  CHECK_FALSE(worker.store(range));
  CHECK(worker.lookup(range) == 0);
  auto plan = worker.prepare_retrieve(range);
  CHECK(plan.answered);
  CHECK_FALSE(plan.success);
  CHECK(worker.commit_retrieve(range));
  CHECK(second.mp("unknown_instances") > 0);
  // One ping fails, which makes LMCache's worker register again.
  CHECK(worker.ping().is_false());
  auto after = worker.ping();
  CHECK(after.what == mp_reply::kind::value);
  CHECK_FALSE(after.is_false());
  CHECK(after.value != before.value);
  REQUIRE(worker.enroll(1));
  CHECK(worker.pool != old_pool);
  CHECK(worker.lookup(range) == 0);
  CHECK(worker.store(range));
  CHECK(worker.exact_prefix(range) == 2);
  second.wait_for_rest();
}

TEST_CASE("a worker that only attached unlinks the segment: mapped and new ones go on") {
  mp_daemon served;
  mp_client mapped{served.mp_port()};
  REQUIRE(mapped.enroll(1));
  chunk_range range{.prompt = 1, .last = 4};
  REQUIRE(mapped.store(range));
  auto name = status_of(served)["pool"]["name"].get<std::string>();
  REQUIRE(unlink(("/dev/shm/" + name).c_str()) == 0);
  CHECK(mapped.exact_prefix(range) == 4);
  CHECK(mapped.store({.prompt = 2, .last = 4}));
  wait_until([&] { return served.metric("kvasir_segment_lost_total") == 1; });
  mp_client next{served.mp_port()};
  REQUIRE(next.enroll(2));
  REQUIRE(next.pool);
  REQUIRE(*next.pool);
  CHECK(next.exact_prefix({.prompt = 2, .last = 4}) == 4);
  CHECK(next.store({.prompt = 3, .last = 4}));
  CHECK(mapped.exact_prefix({.prompt = 3, .last = 4}) == 4);
  served.wait_for_rest();
}

TEST_CASE("sixteen instances that store in bulk at once all stay alive, nothing is lost") {
  mp_daemon served{{"--pool-size", "192MiB"}};
  std::atomic<int> refused{0};
  std::atomic<int> wrong{0};
  std::atomic<int> silent{0};
  std::vector<std::thread> crowd;
  for (uint64_t i = 1; i <= 16; ++i)
    crowd.emplace_back([&, i] {
      mp_client client{served.mp_port()};
      refused += client.enroll(i, large_layout(1), "m", 1, i % 4 != 0) ? 0 : 1;
      for (uint32_t at = 0; at < 8; ++at) {
        silent += client.ping().what == mp_reply::kind::value ? 0 : 1;
        chunk_range range{
          .prompt = i, .first = at, .last = at + 1, .request = std::to_string(i)};
        // Inline stores of all at once may exceed what may be under way: then once more.
        auto stored = client.store(range);
        for (auto again = 0; !stored && again < 1000; ++again)
          stored = client.store(range);
        refused += stored ? 0 : 1;
      }
      wrong += client.exact_prefix({.prompt = i, .last = 8, .request = std::to_string(i)}) == 8
                 ? 0
                 : 1;
      refused += client.leave() ? 0 : 1; // Or it is silent while others go on.
    });
  for (auto& thread : crowd)
    thread.join();
  CHECK(refused == 0);
  CHECK(wrong == 0);
  CHECK(silent == 0);
  CHECK(served.engines("reaped") == 0);
  served.wait_for_rest();
}

TEST_CASE("instances that died without a word are forgotten, with their layouts") {
  mp_daemon served{{"--reap-timeout", "200ms"}};
  for (uint64_t i = 0; i < 20; ++i) {
    mp_client client{served.mp_port()};
    REQUIRE(client.enroll(100 + i));
    if (i % 2 == 0)
      REQUIRE(client.prepare_store({.prompt = i, .last = 2}).slots.size() == 2);
  }
  wait_until([&] { return served.metric("kvasir_engines") == 0; });
  CHECK(served.sessions("layouts") == 0);
  served.wait_for_rest();
  mp_layout another;
  another.hidden = 256;
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1, another));
  CHECK(client.store({.prompt = 1, .last = 1}));
  CHECK(client.exact_prefix({.prompt = 1, .last = 1}) == 1);
}
