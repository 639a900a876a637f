// Which chunks a prompt has: at the edges of chunks, over ranks, and under pressure.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;

TEST_CASE("a token more or less than whole chunks") {
  mp_daemon served;
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  REQUIRE(client.store({.prompt = 1, .last = 8}));
  auto prefix_of = [&](uint32_t tokens) {
    return client.exact_prefix({.prompt = 1,
                                .last = tokens / chunk_tokens,
                                .request = std::to_string(tokens),
                                .extra_tokens = tokens % chunk_tokens});
  };
  CHECK(prefix_of(0) == 0);
  CHECK(prefix_of(chunk_tokens - 1) == 0);
  CHECK(prefix_of(chunk_tokens) == 1);
  CHECK(prefix_of(chunk_tokens + 1) == 1);
  CHECK(prefix_of(8 * chunk_tokens - 1) == 7);
  CHECK(prefix_of(8 * chunk_tokens) == 8);
  CHECK(prefix_of(8 * chunk_tokens + 1) == 8);
  CHECK(prefix_of(9 * chunk_tokens - 1) == 8);
  CHECK(prefix_of(9 * chunk_tokens) == 8);
  served.wait_for_rest();
}

TEST_CASE("a prefix is what every rank has") {
  mp_daemon served;
  std::vector<std::unique_ptr<mp_client>> ranks;
  auto of_rank = [](uint64_t prompt, uint32_t rank, uint32_t first, uint32_t last) {
    return chunk_range{.prompt = prompt,
                       .first = first,
                       .last = last,
                       .request = "p" + std::to_string(prompt),
                       .world_size = 4,
                       .rank = rank};
  };
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<mp_client>(served.mp_port()));
    REQUIRE(ranks[rank]->enroll(rank, {}, "m", 4));
    REQUIRE(ranks[rank]->store(of_rank(1, rank, 0, 3)));
    REQUIRE(ranks[rank]->store(of_rank(1, rank, rank == 2 ? 4 : 3, 5)));
    if (rank < 2)
      REQUIRE(ranks[rank]->store(of_rank(2, rank, 0, 5)));
  }
  served.wait_for_rest();
  mp_client scheduler{served.mp_port()};
  CHECK(scheduler.lookup(of_rank(1, 0, 0, 5)) == 3);
  CHECK(served.storage("read_leases") == 12);
  for (uint32_t rank = 0; rank < 4; ++rank)
    CHECK(ranks[rank]->retrieves_exactly(of_rank(1, rank, 0, 3)));
  CHECK(served.storage("read_leases") == 0);
  CHECK(scheduler.lookup(of_rank(2, 0, 0, 5)) == 0);
  CHECK(served.storage("read_leases") == 0);
  CHECK_FALSE(ranks[0]->prepare_retrieve(of_rank(2, 0, 0, 5)).success);
  scheduler.end_session("p1");
  scheduler.end_session("p2");
  CHECK(served.mp_at_rest());
}

TEST_CASE("a request that is named again with another prompt stores under that prompt") {
  mp_daemon served;
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  chunk_range first{.prompt = 1, .last = 3};
  chunk_range second{.prompt = 2, .last = 4};
  CHECK(client.store(first));
  CHECK(client.store(second));
  CHECK(client.exact_prefix(first) == 3);
  CHECK(client.exact_prefix(second) == 4);
  // Also while the first has a lookup that was not ended.
  REQUIRE(client.lookup(first) == 3);
  CHECK_FALSE(client.prepare_retrieve(second).success);
  CHECK(client.lookup(second) == 4);
  CHECK(client.retrieves_exactly(second));
  client.end_session("r");
  served.wait_for_rest();
}

TEST_CASE("tenants with equal prompts do not see each other's chunks") {
  mp_daemon served;
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  chunk_range mine{.prompt = 1, .last = 2, .salt = "mine"};
  auto theirs = mine;
  theirs.salt = "theirs";
  auto none = mine;
  none.salt.clear();
  CHECK(client.store(mine));
  CHECK(client.exact_prefix(theirs) == 0);
  CHECK(client.exact_prefix(none) == 0);
  CHECK(client.exact_prefix(mine) == 2);
  served.wait_for_rest();
}

TEST_CASE("under pressure a prompt keeps its beginning, however often its end is read") {
  const std::vector<std::pair<std::string, uint64_t>> cases{
    {"lru", 4}, {"s3fifo", 8}, {"s3fifo", 24}, {"s3fifo", 60}};
  for (auto& [policy, evictions] : cases) {
    CAPTURE(policy);
    CAPTURE(evictions);
    mp_daemon served{{"--pool-size", "16MiB", "--eviction", policy}};
    mp_client client{served.mp_port()};
    REQUIRE(client.enroll(1, large_layout(1)));
    chunk_range whole{.prompt = 1, .last = 8, .request = "whole"};
    REQUIRE(client.store(whole));
    for (auto i = 0; i < 20; ++i) {
      REQUIRE(client.lookup(whole) == 8);
      chunk_range end{.prompt = 1, .first = 4, .last = 8, .request = "whole"};
      CHECK(client.retrieves_exactly(end));
      client.end_session("whole");
    }
    for (uint64_t prompt = 100; served.storage("evicted_objects") < evictions; ++prompt) {
      chunk_range other{.prompt = prompt, .last = 1, .request = "other"};
      REQUIRE(client.store(other));
      REQUIRE(client.exact_prefix(other) == 1);
    }
    auto found = client.exact_prefix(whole);
    CHECK(found >= 0);
    if (policy == "lru")
      CHECK(found == 4);
    // What is missing is all behind what was found.
    auto missing = client.prepare_store(whole).slots;
    CHECK(missing.size() <= static_cast<size_t>(8 - found));
    for (auto& slot : missing)
      CHECK(slot.index >= static_cast<uint32_t>(found));
  }
}
