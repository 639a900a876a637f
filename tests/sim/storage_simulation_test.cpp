#include "sim/storage_chunk_clients.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

/// Seeded simulations of the storage manager. KVASIR_SIM_SEEDS sets how many seeds are run,
/// KVASIR_SIM_SEED runs one only.

using namespace kvasir;
using namespace kvasir::test;

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  auto text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void must_pass(uint64_t seed) {
  auto result = simulate(seed);
  CHECK_MESSAGE(result.failure.empty(), "KVASIR_SIM_SEED=", seed, ", step ", result.steps, ": ",
                result.failure);
}

} // namespace

TEST_CASE("no seed makes the storage manager break what must hold") {
  if (auto seed = from_environment("KVASIR_SIM_SEED", 0); seed != 0)
    return must_pass(seed);
  storage_status sum;
  uint64_t engine_holds = 0;
  for (uint64_t seed = 1; seed <= from_environment("KVASIR_SIM_SEEDS", 200); ++seed) {
    auto result = simulate(seed);
    CHECK_MESSAGE(result.failure.empty(), "KVASIR_SIM_SEED=", seed, ", step ", result.steps,
                  ": ", result.failure);
    CHECK(result.steps >= 200);
    sum.hits += result.last.hits;
    sum.published += result.last.published;
    sum.evicted_objects += result.last.evicted_objects;
    sum.aborted_writes += result.last.aborted_writes;
    sum.rejected_busy += result.last.rejected_busy;
    sum.unknown_leases += result.last.unknown_leases;
    sum.chunks_stored += result.last.chunks_stored;
    sum.chunks_late += result.last.chunks_late;
    sum.chunks_no_room += result.last.chunks_no_room;
    sum.prefix_chunks_held += result.last.prefix_chunks_held;
    sum.prefixes_cut += result.last.prefixes_cut;
    sum.skipped_evictions += result.last.skipped_evictions;
    sum.engine_touches += result.last.engine_touches;
    sum.index_refused += result.last.index_refused;
    engine_holds += result.engine_holds;
  }
  // A simulation in which nothing happens finds nothing.
  CHECK(sum.hits > 0);
  CHECK(sum.published > 0);
  CHECK(sum.evicted_objects > 0);
  CHECK(sum.aborted_writes > 0);
  CHECK(sum.rejected_busy > 0);
  CHECK(sum.unknown_leases > 0);
  CHECK(sum.chunks_stored > 0);
  CHECK(sum.chunks_late > 0);
  CHECK(sum.chunks_no_room > 0);
  CHECK(sum.prefix_chunks_held > 0);
  CHECK(sum.prefixes_cut > 0);
  CHECK(sum.skipped_evictions > 0);
  CHECK(sum.engine_touches > 0);
  CHECK(sum.index_refused > 0);
  CHECK(engine_holds > 0);
  MESSAGE("hits ", sum.hits, ", published ", sum.published, ", evicted ", sum.evicted_objects,
          ", aborted ", sum.aborted_writes, ", busy ", sum.rejected_busy, ", unknown leases ",
          sum.unknown_leases, ", chunks stored ", sum.chunks_stored, ", late ", sum.chunks_late,
          ", without room ", sum.chunks_no_room, ", held as prefixes ", sum.prefix_chunks_held,
          ", prefixes cut ", sum.prefixes_cut, ", evictions skipped ", sum.skipped_evictions,
          ", held by engines ", engine_holds, ", not indexed ", sum.index_refused);
}

TEST_CASE("the same seed gives the same run, message by message") {
  for (uint64_t seed : {3, 25, 77}) {
    auto first = simulate(seed);
    auto second = simulate(seed);
    CHECK(first.digest == second.digest);
    CHECK(first.answers == second.answers);
    CHECK(first.answers > 100);
  }
}

TEST_CASE("each planted bug is found within 1000 seeds that the correct code passes") {
  for (auto planted : {fault::skipped_abort, fault::double_release, fault::stale_epoch,
                       fault::lost_reply, fault::overlapping_slot, fault::forgotten_hold,
                       fault::published_abort, fault::published_expiry, fault::forgotten_parent,
                       fault::unchecked_hold, fault::unseen_board}) {
    uint64_t seed = 0;
    storage_world::outcome found;
    while (found.failure.empty() && ++seed <= 1000)
      found = simulate(seed, planted);
    CHECK_MESSAGE(!found.failure.empty(), "not found: ", to_string(planted));
    MESSAGE(to_string(planted), ": found by seed ", seed, " in step ", found.steps, ": ",
            found.failure);
    for (uint64_t i = 1; i <= seed; ++i)
      must_pass(i);
  }
}
