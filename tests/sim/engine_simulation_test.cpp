#include "sim/engine_world.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

/// Seeded simulations of engines, sessions and the storage manager together. KVASIR_SIM_SEEDS sets
/// how many seeds are run, KVASIR_SIM_SEED runs one only.

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr int steps = 250;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  auto text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// The first seed that finds a planted bug; 0 if none does.
uint64_t found_by(plant bug) {
  for (uint64_t seed = 1; seed <= 1000; ++seed)
    if (!engine_world{seed, bug}.run(steps).empty())
      return seed;
  return 0;
}

} // namespace

TEST_SUITE_BEGIN("engine simulation");

TEST_CASE("no seed makes engines and sessions break what must hold") {
  uint64_t first = from_environment("KVASIR_SIM_SEED", 1);
  uint64_t last = std::getenv("KVASIR_SIM_SEED") != nullptr
                    ? first
                    : from_environment("KVASIR_SIM_SEEDS", 200);
  uint64_t stored = 0;
  uint64_t retrieved = 0;
  uint64_t late = 0;
  uint64_t deaths = 0;
  for (auto seed = first; seed <= last; ++seed) {
    engine_world world{seed, plant::none};
    auto failure = world.run(steps);
    CHECK_MESSAGE(failure.empty(), "KVASIR_SIM_SEED=", seed, ": ", failure);
    stored += world.stored;
    retrieved += world.retrieved;
    late += world.late;
    deaths += world.deaths;
  }
  // A simulation in which nothing happens finds nothing.
  MESSAGE("stored ", stored, ", retrieved ", retrieved, ", late ", late, ", deaths ", deaths);
  CHECK(stored > 0);
  CHECK(retrieved > 0);
  CHECK(late > 0);
  CHECK(deaths > 0);
}

TEST_CASE("planted bugs are found") {
  for (auto bug : {plant::publish_expired, plant::free_expired, plant::forget_release,
                   plant::lose_answer, plant::skip_hold, plant::forget_owner}) {
    auto seed = found_by(bug);
    MESSAGE("bug ", static_cast<int>(bug), " is found by seed ", seed);
    CHECK(seed != 0);
  }
}

TEST_SUITE_END();
