// What lookups and retrieves hold, and that nothing of it is left.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

/// A worker that stored chunks 0..3 of prompt 1.
struct stored_prompt {
  explicit stored_prompt(std::vector<std::string> arguments = {}, const mp_layout& layout = {})
    : served(std::move(arguments)),
      worker(served.mp_port()) {
    REQUIRE(worker.enroll(1, layout));
    REQUIRE(worker.store(range));
    served.wait_for_rest();
  }

  chunk_range as(const std::string& request) const {
    auto result = range;
    result.request = request;
    return result;
  }

  uint64_t read_leases() const { return served.storage("read_leases"); }

  chunk_range range{.prompt = 1, .last = 4};
  mp_daemon served;
  mp_client worker;
};

} // namespace

TEST_CASE("overlapping retrieves of the same chunks leave nothing behind") {
  stored_prompt given;
  auto& worker = given.worker;
  auto first = given.as("r1");
  auto second = given.as("r2");
  REQUIRE(worker.lookup(first) == 4);
  REQUIRE(worker.lookup(second) == 4);
  CHECK(worker.prepare_retrieve(first).success);
  CHECK(worker.prepare_retrieve(second).success);
  CHECK(worker.commit_retrieve(second).is_true());
  CHECK(given.read_leases() == 4);
  CHECK(worker.commit_retrieve(first).is_true());
  CHECK(given.read_leases() == 0);

  // The same request twice, too.
  auto twice = given.as("r3");
  twice.readers = 2;
  REQUIRE(worker.lookup(twice) == 4);
  CHECK(worker.prepare_retrieve(twice).success);
  CHECK(worker.prepare_retrieve(twice).success);
  CHECK(worker.commit_retrieve(twice).is_true());
  CHECK(worker.commit_retrieve(twice).is_true());
  CHECK(given.read_leases() == 0);
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("the end of a session ends its leases, not what a worker still copies") {
  stored_prompt given;
  auto& worker = given.worker;
  auto range = given.as("r1");
  REQUIRE(worker.lookup(range) == 4);
  CHECK(given.read_leases() == 4);
  CHECK(worker.end_session("r1").what == mp_reply::kind::nothing);
  CHECK(given.read_leases() == 0);
  CHECK(worker.end_session("r1").what == mp_reply::kind::nothing);
  CHECK_FALSE(worker.prepare_retrieve(range).success);

  REQUIRE(worker.lookup(range) == 4);
  auto plan = worker.prepare_retrieve(range);
  REQUIRE(plan.success);
  worker.end_session("r1");
  CHECK(given.read_leases() == 4);
  CHECK(worker.call("clear", {true}).what == mp_reply::kind::nothing);
  CHECK(worker.chunks_of(plan) == chunk_values(range, worker.layout));
  worker.commit_retrieve(range);
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("the leases of a scheduler end when its connection is gone") {
  stored_prompt given{{"--reap-timeout", "1s"}};
  {
    mp_client scheduler{given.served.mp_port()};
    REQUIRE(scheduler.lookup(given.as("gone")) == 4);
  }
  mp_client steady{given.served.mp_port()};
  REQUIRE(steady.lookup(given.as("steady")) == 4);
  CHECK(given.read_leases() == 8);
  wait_until([&] { return steady.ping() && given.read_leases() == 4; });
  wait_until([&] { return steady.ping() && given.served.mp("clients_gone") == 1; });
  CHECK(given.read_leases() == 4);
  steady.end_session("steady");
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("a retrieve does not ride on the lookup of another request") {
  stored_prompt given;
  auto& worker = given.worker;
  REQUIRE(worker.lookup(given.as("r1")) == 4);
  CHECK_FALSE(worker.prepare_retrieve(given.as("r2")).success);
  CHECK(worker.commit_retrieve(given.as("r2"))); // Answered, and releases nothing of r1.
  CHECK(worker.commit_retrieve(given.as("r1")));
  CHECK(given.read_leases() == 4);
  CHECK(worker.retrieves_exactly(given.as("r1")));
  // One was announced, not two.
  CHECK_FALSE(worker.prepare_retrieve(given.as("r1")).success);
  CHECK(worker.commit_retrieve(given.as("r1")));
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("the same lookup three times counts once") {
  stored_prompt given;
  auto& worker = given.worker;
  auto range = given.as("r1");
  for (auto i = 0; i < 3; ++i)
    CHECK(worker.lookup(range) == 4);
  CHECK(given.read_leases() == 4);
  CHECK(worker.call("query_prefetch_status", {"r1"}).value == 0); // It was told already.
  CHECK(worker.retrieves_exactly(range));
  CHECK(worker.commit_retrieve(range));
  worker.end_session("r1");
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("locks are freed under the salt they were taken with, by whoever holds them") {
  stored_prompt given;
  auto& worker = given.worker;
  auto salted = given.as("r1");
  salted.salt = "t1";
  salted.last = 2;
  REQUIRE(worker.store(salted));
  wait_until([&] { return given.read_leases() == 0; });
  REQUIRE(worker.lookup(salted) == 2);
  auto unsalted = salted;
  unsalted.salt.clear();
  CHECK(worker.free_locks(unsalted).what == mp_reply::kind::nothing);
  CHECK(given.read_leases() == 2);
  CHECK(given.served.sessions("unlock_misses") == 2);
  auto another = salted;
  another.request = "r2";
  worker.free_locks(another);
  CHECK(given.read_leases() == 2);
  CHECK(given.served.sessions("unlock_misses") == 4);
  worker.free_locks(salted);
  CHECK(given.read_leases() == 0);
  worker.free_locks(salted);
  CHECK_FALSE(worker.prepare_retrieve(salted).success);
  worker.end_session("r1");
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("eight readers that a lookup announced are served, a ninth is not") {
  stored_prompt given;
  auto range = given.as("r1");
  range.readers = 8;
  REQUIRE(given.worker.lookup(range) == 4);
  std::vector<std::unique_ptr<mp_client>> readers;
  for (uint64_t i = 0; i < 8; ++i) {
    readers.push_back(std::make_unique<mp_client>(given.served.mp_port()));
    REQUIRE(readers.back()->enroll(10 + i));
  }
  for (auto& reader : readers)
    CHECK(reader->retrieves_exactly(range));
  CHECK(given.read_leases() == 0);
  CHECK_FALSE(given.worker.prepare_retrieve(range).success);
  CHECK(given.served.mp_at_rest());
}

TEST_CASE("when promised chunks vanish, every reader is told so") {
  stored_prompt given;
  auto range = given.as("r1");
  range.readers = 8;
  REQUIRE(given.worker.lookup(range) == 4);
  REQUIRE(given.worker.call("clear", {true}).what == mp_reply::kind::nothing);
  chunk_range others{.prompt = 1, .last = 2}; // Two of the four come back.
  REQUIRE(given.worker.store(others));
  for (auto i = 0; i < 8; ++i) {
    auto plan = given.worker.prepare_retrieve(range);
    CHECK(plan.answered);
    CHECK_FALSE(plan.success);
    CHECK(plan.slots.empty());
    CHECK(plan.data.empty());
    CHECK(given.worker.commit_retrieve(range));
  }
  CHECK(given.served.engines("retrieves_failed") == 8);
  given.worker.end_session("r1");
  given.served.wait_for_rest();
}

TEST_CASE("what a lookup found survives a flood of stores") {
  auto layout = large_layout(1);
  stored_prompt given{{"--pool-size", "16MiB"}, layout};
  auto range = given.as("r1");
  REQUIRE(given.worker.lookup(range) == 4);
  mp_client flood{given.served.mp_port()};
  REQUIRE(flood.enroll(2, layout));
  for (uint64_t prompt = 100; prompt < 124; ++prompt)
    CHECK(flood.store({.prompt = prompt, .last = 2}));
  CHECK(given.served.storage("evicted_objects") > 16);
  CHECK(given.worker.retrieves_exactly(range));
  given.worker.end_session("r1");
  given.served.wait_for_rest();
}

TEST_CASE("a retrieve after its lease ended succeeds as long as all is there, or fails whole") {
  auto layout = large_layout(1);
  stored_prompt given{{"--pool-size", "16MiB", "--read-ttl", "1s", "--eviction", "lru"},
                      layout};
  auto& worker = given.worker;
  REQUIRE(worker.lookup(given.as("r1")) == 4);
  REQUIRE(worker.lookup(given.as("r2")) == 4);
  wait_until([&] { return given.served.sessions("leases_expired") == 8; });
  CHECK(given.read_leases() == 0);
  CHECK(worker.retrieves_exactly(given.as("r1")));

  mp_client flood{given.served.mp_port()};
  REQUIRE(flood.enroll(2, layout));
  // As many as are read least recently go: a part of the prompt stays.
  for (uint64_t prompt = 100; given.served.storage("evicted_objects") < 2; ++prompt)
    REQUIRE(flood.store({.prompt = prompt, .last = 1}));
  auto plan = worker.prepare_retrieve(given.as("r2"));
  CHECK(plan.answered);
  CHECK_FALSE(plan.success);
  CHECK(plan.slots.empty());
  CHECK(worker.commit_retrieve(given.as("r2")));
  CHECK(worker.exact_prefix(given.as("r3")) == 2);
  given.served.wait_for_rest();
}
