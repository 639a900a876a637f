// Workers that are killed anywhere in their stores and retrieves, among others that go on.
#include "support/mp_daemon.hpp"
#include "support/worker_process.hpp"

#include <poll.h>

using namespace kvasir::test;

namespace {

constexpr uint64_t prompt_count = 48;
constexpr uint32_t longest = 8; ///< Chunks of a prompt.

/// 64 KiB a chunk: all prompts together are larger than the pool.
mp_layout worker_layout() {
  return {.layers = 4, .hidden = 256};
}

bool told_to_stop(const letter_channel& test) {
  pollfd waiting{test.in(), POLLIN, 0};
  return poll(&waiting, 1, 0) != 0;
}

chunk_range random_range(std::mt19937_64& random, uint64_t instance, uint64_t step) {
  return {.prompt = up_to(random, prompt_count - 1),
          .last = static_cast<uint32_t>(1 + up_to(random, longest - 1)),
          .request = std::to_string(instance) + "-" + std::to_string(step)};
}

/// Stores and retrieves until it is told to stop, or a byte is wrong.
void work(uint16_t port, uint64_t instance, uint64_t seed, const letter_channel& test,
          bool tell_steps) {
  std::mt19937_64 random{seed};
  mp_client client{port};
  auto fine = client.enroll(instance, worker_layout()) && client.ping();
  uint64_t hits = 0;
  for (uint64_t step = 0; fine && !told_to_stop(test); ++step) {
    auto range = random_range(random, instance, step);
    if (up_to(random, 1) == 0) {
      auto plan = client.prepare_store(range);
      fine = plan.answered;
      client.fill(range, plan);
      if (!plan.slots.empty())
        fine = fine && client.commit_store(range);
    } else {
      auto found = client.exact_prefix(range);
      // A retrieve may be refused; then nothing was read.
      fine = found >= 0 || found == -2;
      hits += found > 0 ? 1 : 0;
    }
    if (tell_steps)
      test.say('.');
  }
  test.say(!fine ? 'w' : hits > 0 ? 'k' : '0');
}

} // namespace

TEST_CASE("workers killed at any point of a store or retrieve harm no other") {
  uint64_t seed = 0;
  auto random = seeded(seed);
  CAPTURE(seed);
  mp_daemon served{{"--pool-size", "16MiB", "--reap-timeout", "1s", "--log-level", "error"}};
  auto port = served.mp_port();
  auto start = [&](uint64_t instance, bool tell_steps) {
    return std::make_unique<worker_process>(
      [port, instance, seed_of_it = random(), tell_steps](letter_channel test) {
        work(port, instance, seed_of_it, test, tell_steps);
      });
  };
  std::vector<std::unique_ptr<worker_process>> steady;
  for (uint64_t i = 1; i <= 3; ++i)
    steady.push_back(start(i, false));
  for (uint64_t i = 0; i < 50; ++i) {
    CAPTURE(i);
    auto victim = start(100 + i, true);
    for (auto steps = 1 + up_to(random, 20); steps > 0; --steps)
      REQUIRE(victim->hear() == '.');
    // It is somewhere in its next steps.
    CHECK(victim->kill() == SIGKILL);
  }
  for (auto& worker : steady) {
    worker->say('s');
    CHECK(worker->hear() == 'k');
    CHECK(worker->join() == 0);
  }
  CHECK(served.storage("evicted_objects") > 0);
  // What the dead held is given back once they are reaped.
  served.wait_for_rest();
  CHECK(served.engines("handed_out_bytes") == 0);
  CHECK(served.sessions("lookups_open") == 0);
  CHECK(served.storage("corrupt_objects") == 0);

  // All that can be found is exact.
  mp_client judge{port};
  REQUIRE(judge.enroll(1000, worker_layout()));
  auto found = 0;
  for (uint64_t prompt = 0; prompt < prompt_count; ++prompt) {
    auto exact = judge.exact_prefix({.prompt = prompt, .last = longest});
    CHECK(exact >= 0);
    found += exact;
  }
  CHECK(found > 0);
  CHECK(served.stop().exit_code == 0);
}
