// Clients of the MP port that come and go, or do not read.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

TEST_CASE("5000 clients that come and go leave nothing") {
  mp_daemon served{{"--shm", "off", "--reap-timeout", "1s", "--log-level", "error"}};
  mp_client steady{served.mp_port()};
  REQUIRE(steady.enroll(1, large_layout(1)));
  chunk_range range{.prompt = 1, .last = 8};
  REQUIRE(steady.store(range));
  auto context = std::make_shared<zmq::context_t>(1);
  auto visit = [&](uint64_t number) {
    mp_client client{served.mp_port(), context};
    auto reply = client.call("ping", {number});
    return reply.what == mp_reply::kind::value;
  };
  auto nobody_else = [&] {
    steady.ping();
    return served.metric("kvasir_mp_clients") == 1;
  };
  // Of everything some first: what is allocated once is no leak.
  for (uint64_t i = 0; i < 500; ++i)
    REQUIRE(visit(i));
  wait_until(nobody_else);
  auto before = stats_of(served.process().pid());

  for (uint64_t i = 0; i < 5000; ++i)
    REQUIRE(visit(i));
  {
    std::vector<fault_client> half_open;
    for (auto i = 0; i < 200; ++i) {
      half_open.emplace_back(served.mp_port());
      REQUIRE(half_open.back());
      half_open.back().send(to_bytes(i % 2 == 0 ? "\xff" : "GET"));
    }
    CHECK(steady.ping().what == mp_reply::kind::value);
  }
  for (uint64_t i = 0; i < 50; ++i) {
    chunk_range mine = range;
    mine.request = std::to_string(i);
    mp_client reader{served.mp_port(), context};
    REQUIRE(reader.enroll(100 + i, steady.layout));
    REQUIRE(reader.lookup(mine) == 8);
    reader.ask("prepare_retrieve", {mp_client::packed(mp_client::key_of(mine, true)),
                                    mp_client::packed(reader.instance_id)});
  } // Gone before the answer.
  wait_until(nobody_else);
  wait_until([&] {
    steady.ping();
    return served.sessions("lookups_open") == 0;
  });
  auto after = stats_of(served.process().pid());
  CHECK(after.threads == before.threads);
  CHECK(after.files <= before.files + 2);
  if (!sanitized)
    CHECK(after.anonymous_bytes <= before.anonymous_bytes + 8 * mib);
  CHECK(steady.exact_prefix(range) == 8);
  served.wait_for_rest();
}

TEST_CASE("a client that does not read delays neither 19 others nor the end") {
  mp_daemon served{{"--pool-size", "128MiB"}};
  auto layout = large_layout(1);
  mp_client wedged{served.mp_port(), {}, 1};
  REQUIRE(wedged.enroll(1, layout, "m", 1, false));
  chunk_range due{.prompt = 1, .last = 4};
  REQUIRE(wedged.store(due));
  // 2000 replies of 4 MiB, of which none is read.
  due.readers = 128;
  for (auto i = 0; i < 2000; ++i) {
    if (i % 128 == 0)
      due.request = std::to_string(i);
    if (i % 128 == 0)
      wedged.ask("lookup",
                 {mp_client::packed(mp_client::key_of(due, false)), mp_client::packed(1)});
    wedged.ask("prepare_retrieve",
               {mp_client::packed(mp_client::key_of(due, true)), mp_client::packed(1)});
  }
  wait_until([&] { return served.mp("refused_inline") > 0; });

  std::atomic<int> wrong{0};
  std::atomic<int> done{0};
  std::vector<std::thread> others;
  for (uint64_t c = 0; c < 19; ++c)
    others.emplace_back([&, c] {
      mp_client client{served.mp_port()};
      if (!client.enroll(10 + c, {}, "small"))
        return;
      for (uint64_t i = 0; i < 20; ++i) {
        chunk_range range{.prompt = c * 1000 + i,
                          .last = 2,
                          .request = std::to_string(c * 1000 + i),
                          .model = "small"};
        wrong += client.store(range) && client.exact_prefix(range) == 2 ? 0 : 1;
        done += client.ping().what == mp_reply::kind::value ? 1 : 0;
      }
    });
  for (auto& thread : others)
    thread.join();
  CHECK(wrong == 0);
  CHECK(done == 19 * 20);

  auto before = std::chrono::steady_clock::now();
  auto ended = served.stop();
  auto took = std::chrono::steady_clock::now() - before;
  CHECK(ended.exit_code == 0);
  CHECK(took < 15s); // Five by design.
  MESSAGE(
    "ended after ms: " << std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
}

TEST_CASE("a client that does not read its inline chunks does not starve others of theirs") {
  mp_daemon served{{"--pool-size", "128MiB"}};
  auto layout = large_layout(1);
  chunk_range range{.prompt = 1, .last = 4};
  mp_client wedged{served.mp_port(), {}, 1};
  mp_client other{served.mp_port()};
  REQUIRE(wedged.enroll(1, layout, "m", 1, false));
  REQUIRE(other.enroll(2, layout, "m", 1, false));
  REQUIRE(wedged.store(range));
  auto many = range;
  many.readers = 128;
  many.request = "many";
  wedged.ask("lookup",
             {mp_client::packed(mp_client::key_of(many, false)), mp_client::packed(1)});
  for (auto i = 0; i < 128; ++i)
    wedged.ask("prepare_retrieve",
               {mp_client::packed(mp_client::key_of(many, true)), mp_client::packed(1)});
  wait_until([&] { return served.mp("refused_inline") > 0; });
  CHECK(other.exact_prefix(range) == 4);
  CHECK(other.store({.prompt = 2, .last = 4}));
  CHECK(other.exact_prefix({.prompt = 2, .last = 4}) == 4);
}
