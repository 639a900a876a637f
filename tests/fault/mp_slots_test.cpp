// Slots of the pool that a worker was given and did not bring back: it died, left, froze, or came
// too late.
#include "support/mp_daemon.hpp"
#include "support/worker_process.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

bool overlap(const std::vector<slot_place>& some, const std::vector<slot_place>& others) {
  for (auto& a : some)
    for (auto& b : others)
      if (a.offset < b.offset + b.length && b.offset < a.offset + a.length)
        return true;
  return false;
}

void scribble(const mp_client& client, const std::vector<slot_place>& slots) {
  for (auto& slot : slots) {
    auto place = client.pool->at(slot.offset, slot.length);
    std::fill(place.begin(), place.end(), std::byte{0xaa});
  }
}

} // namespace

TEST_CASE("slots that a worker never wrote are not visible when it leaves") {
  mp_daemon served;
  mp_client other{served.mp_port()};
  REQUIRE(other.enroll(1));
  chunk_range range{.prompt = 1, .last = 4};
  mp_client leaving{served.mp_port()};
  REQUIRE(leaving.enroll(2));
  REQUIRE(leaving.prepare_store(range).slots.size() == 4);
  CHECK(other.lookup(range) == 0);
  CHECK(leaving.leave());
  CHECK(other.lookup(range) == 0);
  served.wait_for_rest();
  CHECK(served.storage("objects") == 0);
  CHECK(other.store(range)); // The keys are free.
  CHECK(other.exact_prefix(range) == 4);
}

TEST_CASE("slots that a worker never wrote are not visible when it is killed and reaped") {
  mp_daemon served{{"--reap-timeout", "1s"}};
  chunk_range range{.prompt = 1, .last = 4};
  worker_process worker{[&](letter_channel test) {
    mp_client client{served.mp_port()};
    auto ready = client.enroll(2) && client.prepare_store(range).slots.size() == 4;
    test.say(ready ? 'p' : '-');
    test.hear();
  }};
  REQUIRE(worker.hear() == 'p');
  CHECK(served.engines("pending_writes") == 1);
  mp_client other{served.mp_port()};
  REQUIRE(other.enroll(1));
  CHECK(worker.kill() == SIGKILL);
  wait_until([&] {
    CHECK(other.lookup(range) == 0);
    other.ping();
    return served.engines("reaped") == 1 && served.mp_at_rest();
  });
  CHECK(other.lookup(range) == 0);
  CHECK(served.storage("objects") == 0);
  CHECK(other.store(range));
  CHECK(other.exact_prefix(range) == 4);
}

TEST_CASE("a frozen worker is reaped; what it writes late is in nobody's chunk") {
  mp_daemon served{{"--pool-size", "16MiB", "--reap-timeout", "1s"}};
  auto layout = large_layout(2); // Seven or eight of them are the pool.
  worker_process worker{[&](letter_channel test) {
    mp_client client{served.mp_port()};
    chunk_range range{.prompt = 100, .last = 2};
    if (!client.enroll(2, layout) || !client.ping())
      return;
    auto plan = client.prepare_store(range);
    test.say(plan.slots.size() == 2 ? 'p' : '-');
    test.hear();
    scribble(client, plan.slots);
    test.say(client.commit_store(range).is_false() ? 'f' : '-');
    test.hear();
  }};
  REQUIRE(worker.hear() == 'p');
  worker.freeze();
  mp_client other{served.mp_port()};
  REQUIRE(other.enroll(1, layout));
  wait_until([&] { return other.ping() && served.engines("reaped") == 1; });
  CHECK(served.engines("quarantined_bytes") == 2 * layout.chunk_bytes());
  // The pool is filled several times over: no slot may be the frozen worker's.
  for (uint64_t prompt = 1; prompt <= 12; ++prompt)
    CHECK(other.store({.prompt = prompt, .last = 2}));
  CHECK(served.storage("evicted_objects") > 0);
  // Its key is free, and belongs to whoever stores it first.
  chunk_range same{.prompt = 100, .last = 2};
  CHECK(other.lookup(same) == 0);
  CHECK(other.store(same));
  CHECK(served.engines("quarantined_bytes") == 2 * layout.chunk_bytes());

  worker.thaw();
  worker.say('w');
  CHECK(worker.hear() == 'f');
  wait_until([&] { return served.engines("quarantined_bytes") == 0; });
  CHECK(served.engines("late_commits") == 1);
  CHECK(other.exact_prefix(same) == 2);
  auto found = 0;
  for (uint64_t prompt = 1; prompt <= 12; ++prompt) {
    auto exact = other.exact_prefix({.prompt = prompt, .last = 2});
    CHECK(exact >= 0);
    found += exact;
  }
  CHECK(found >= 2);
  served.wait_for_rest();
}

TEST_CASE("a frozen worker that dies gives its slots back") {
  mp_daemon served{{"--reap-timeout", "1s"}};
  worker_process worker{[&](letter_channel test) {
    mp_client client{served.mp_port()};
    auto ready = client.enroll(2) && client.ping()
                 && client.prepare_store({.prompt = 1, .last = 2}).slots.size() == 2;
    test.say(ready ? 'p' : '-');
    test.hear();
  }};
  REQUIRE(worker.hear() == 'p');
  worker.freeze();
  wait_until([&] { return served.engines("reaped") == 1; });
  CHECK(served.storage("expired_leases") == 2);
  CHECK_FALSE(served.mp_at_rest());
  worker.kill();
  served.wait_for_rest();
}

TEST_CASE("a commit after its reservation expired is answered with false") {
  mp_daemon served{{"--write-ttl", "1s"}};
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  chunk_range range{.prompt = 1, .last = 2};
  auto first = client.prepare_store(range);
  REQUIRE(first.slots.size() == 2);
  client.fill(range, first);
  wait_until([&] { return served.engines("expired_writes") == 1; });
  // The same worker tries again before its late commit is there.
  auto second = client.prepare_store(range);
  REQUIRE(second.slots.size() == 2);
  CHECK_FALSE(overlap(first.slots, second.slots));
  scribble(client, first.slots);
  CHECK(client.commit_store(range).is_false());
  CHECK(client.lookup(range) == 0);
  client.fill(range, second);
  CHECK(client.commit_store(range).is_true());
  CHECK(client.exact_prefix(range) == 2);
  CHECK(client.commit_store(range).is_false()); // Nothing is pending.
  served.wait_for_rest();
}

TEST_CASE("nobody is given a slot that an expired writer may still write") {
  mp_daemon served{{"--pool-size", "16MiB", "--write-ttl", "1s"}};
  auto layout = large_layout(2);
  mp_client slow{served.mp_port()};
  mp_client fast{served.mp_port()};
  REQUIRE(slow.enroll(1, layout));
  REQUIRE(fast.enroll(2, layout));
  chunk_range stalled{.prompt = 100, .last = 2};
  auto plan = slow.prepare_store(stalled);
  REQUIRE(plan.slots.size() == 2);
  wait_until([&] { return served.engines("expired_writes") == 1; });
  for (uint64_t prompt = 1; prompt <= 8; ++prompt) {
    chunk_range range{.prompt = prompt, .last = 2};
    auto given = fast.prepare_store(range);
    CHECK(given.slots.size() == 2);
    CHECK_FALSE(overlap(plan.slots, given.slots));
    fast.fill(range, given);
    CHECK(fast.commit_store(range).is_true());
  }
  scribble(slow, plan.slots);
  CHECK(slow.commit_store(stalled).is_false());
  CHECK(fast.lookup(stalled) == 0);
  for (uint64_t prompt = 1; prompt <= 8; ++prompt)
    CHECK(fast.exact_prefix({.prompt = prompt, .last = 2}) >= 0);
  CHECK(fast.exact_prefix({.prompt = 8, .last = 2}) == 2);
  served.wait_for_rest();
}
