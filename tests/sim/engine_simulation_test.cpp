#include "sim/engine_world.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

/// Seeded simulations of engines, sessions and the storage manager together. KVASIR_SIM_SEEDS sets
/// how many seeds are run, KVASIR_SIM_SEED runs one only.

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr int steps = 500;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  auto text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct planted {
  plant bug;
  std::string name;
};

const planted bugs[] = {{plant::publish_expired, "a published expiry"},
                        {plant::free_expired, "a freed expiry"},
                        {plant::forget_release, "a forgotten release"},
                        {plant::lose_answer, "a lost answer"},
                        {plant::skip_hold, "a skipped hold"},
                        {plant::forget_owner, "a forgotten owner"},
                        {plant::double_release, "a double release"},
                        {plant::keep_ticket, "a kept ticket"},
                        {plant::stale_hash, "a stale hash"},
                        {plant::early_fence, "an early fence"}};

/// More would mean that the simulation finds it by luck.
constexpr uint64_t most_seeds = 100;

} // namespace

TEST_SUITE_BEGIN("engine simulation");

TEST_CASE("no seed makes engines and sessions break what must hold") {
  uint64_t first = from_environment("KVASIR_SIM_SEED", 1);
  uint64_t last = std::getenv("KVASIR_SIM_SEED") != nullptr
                    ? first
                    : from_environment("KVASIR_SIM_SEEDS", 500);
  uint64_t stored = 0;
  uint64_t retrieved = 0;
  uint64_t late = 0;
  uint64_t deaths = 0;
  uint64_t returns = 0;
  for (auto seed = first; seed <= last; ++seed) {
    engine_world world{seed, plant::none};
    auto failure = world.run(steps);
    CHECK_MESSAGE(failure.empty(), "KVASIR_SIM_SEED=", seed, ": ", failure);
    stored += world.stored;
    retrieved += world.retrieved;
    late += world.late;
    deaths += world.deaths;
    returns += world.returns;
  }
  // A simulation in which nothing happens finds nothing.
  MESSAGE("stored ", stored, ", retrieved ", retrieved, ", late ", late, ", deaths ", deaths,
          ", returns ", returns);
  CHECK(stored > 0);
  CHECK(retrieved > 0);
  CHECK(late > 0);
  CHECK(deaths > 0);
  CHECK(returns > 0);
}

TEST_CASE("each planted bug is found within few seeds") {
  for (auto& each : bugs) {
    std::string failure;
    uint64_t seed = 0;
    while (failure.empty() && seed < most_seeds)
      failure = engine_world{++seed, each.bug}.run(steps);
    MESSAGE(each.name, ": found by seed ", seed, ": ", failure);
    CHECK_FALSE(failure.empty());
  }
}

TEST_SUITE_END();
