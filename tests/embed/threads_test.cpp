#include "support/embedded_client.hpp"

#include <atomic>
#include <thread>

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr uint32_t num_prompts = 40;

/// Every element of a prompt's chunk `i`.
float number_of(uint32_t which, size_t i) {
  return static_cast<float>(which * 10 + i);
}

struct tally {
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> failed{0};
};

void use(embedded_client& fixture, uint32_t seed, tally& sum) {
  auto& client = *fixture.client;
  for (uint32_t step = 0; step < 600; ++step) {
    seed = seed * 1664525 + 1013904223;
    const auto which = (seed >> 8) % num_prompts;
    auto prompt = fixture.prompt_of(1000 * which, 12);
    auto check = [&](const at::Tensor& chunk, size_t i) {
      ++sum.hits;
      if (!is_all(chunk, number_of(which, i)))
        ++sum.wrong;
    };
    switch ((seed >> 20) % 4) {
      case 0: {
        tensors kv;
        for (size_t i = 0; i < 3; ++i)
          kv.push_back(fixture.chunk(number_of(which, i)));
        sum.failed += client.store(prompt, std::move(kv)).get() ? 0 : 1;
        break;
      }
      case 1: {
        auto into = fixture.room(3);
        auto loaded = client.load(prompt, into).get();
        sum.failed += loaded && loaded->corrupt == 0 ? 0 : 1;
        for (size_t i = 0; loaded && i < loaded->chunks; ++i)
          check(into[i], i);
        break;
      }
      case 2: {
        auto views = client.view(prompt).get();
        sum.failed += views ? 0 : 1;
        for (size_t i = 0; views && i < views->size(); ++i)
          check((*views)[i], i);
        break;
      }
      case 3: {
        auto found = client.lookup(prompt).get();
        sum.failed += found ? 0 : 1;
        auto into = fixture.room(3);
        auto loaded = found ? client.load(*found, into).get() : found.error();
        if (!loaded || loaded->chunks != found->chunks())
          ++sum.failed;
        break;
      }
    }
  }
}

} // namespace

TEST_CASE("threads that store, load, view and evict see only what was stored") {
  auto options = small_options();
  options.pool_bytes = 64 * 4096; // Half of what is stored.
  SUBCASE("copied by the callers") {}
  SUBCASE("copied by copying threads") {
    options.max_inline_copy_bytes = 0;
  }
  embedded_client fixture{options};
  tally sum;
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] { use(fixture, 77 * t + 1, sum); });
  }
  CHECK(sum.hits > 0);
  CHECK(sum.wrong == 0);
  CHECK(sum.failed == 0);
  auto status = value_of(fixture.client->status());
  CHECK(status.evicted_objects > 0);
  CHECK(status.read_leases == 0);
  CHECK(status.write_leases == 0);
  CHECK(status.held_bytes == 0);
  CHECK(status.staged_bytes == 0);
}

TEST_CASE_FIXTURE(embedded_client, "one prompt may be used by several threads at once") {
  auto prompt = prompt_of(0, 8);
  store(prompt, 2);
  std::atomic<uint64_t> found{0};
  {
    std::vector<std::jthread> threads;
    for (auto t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (auto i = 0; i < 2000; ++i)
          found += client->lookup(prompt).get()->chunks();
      });
  }
  CHECK(found == 4 * 2000 * 2);
  CHECK(leases() == 0);
}
