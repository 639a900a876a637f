// A reader that takes an object apart by layers while others fill the pool.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

using namespace kvasir::test;

TEST_CASE("layer by layer under a flood of stores: each value exact or a miss") {
  constexpr uint64_t chunks = 8;
  constexpr uint64_t layers = 32;
  constexpr size_t layer_bytes = 64 * 1024;
  auto key = [](uint64_t chunk, uint64_t layer) {
    return numbered_key("layered", chunk) + "@" + std::to_string(layer);
  };
  auto seed = [](uint64_t chunk, uint64_t layer) {
    return 1'000'000 + chunk * layers + layer;
  };
  running_daemon served{{"--pool-size", "32MiB"}};
  wait_for_growth(served);

  std::atomic<uint64_t> stored_bytes{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> flood;
  for (uint64_t f = 0; f < 2; ++f)
    flood.emplace_back([&, f] {
      fault_client client{served.lm_port()};
      for (uint64_t i = f; !stop; i += 2) {
        if (!client.send_put(numbered_key("flood", i), value_of(i, 512 * 1024)))
          return;
        stored_bytes += 512 * 1024;
      }
    });
  size_t hits = 0;
  size_t misses = 0;
  fault_client reader{served.lm_port()};
  bytes found;
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  // Rounds until the flood has replaced the pool several times.
  for (auto round = 0; round < 3 || stored_bytes < 4 * 32 * mib; ++round) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    for (uint64_t chunk = 0; chunk < chunks; ++chunk)
      for (uint64_t layer = 0; layer < layers; ++layer)
        REQUIRE(reader.send_put(key(chunk, layer), value_of(seed(chunk, layer), layer_bytes)));
    for (uint64_t layer = 0; layer < layers; ++layer)
      for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
        auto outcome = reader.get(key(chunk, layer), found);
        REQUIRE(outcome != fault_client::found::lost);
        if (outcome == fault_client::found::miss) {
          ++misses;
          continue;
        }
        ++hits;
        if (found.size() != layer_bytes || !is_value(found, seed(chunk, layer)))
          FAIL_CHECK("wrong bytes for " << key(chunk, layer));
      }
  }
  stop = true;
  for (auto& thread : flood)
    thread.join();
  MESSAGE("hits " << hits << ", misses " << misses);
  // In calm the newest value is there, whatever the flood left of the others.
  REQUIRE(reader.send_put(key(0, 0), value_of(seed(0, 0), layer_bytes)));
  CHECK(reader.get(key(0, 0), found) == fault_client::found::hit);
  CHECK(served.metric("kvasir_evicted_objects_total") > 0);
  CHECK(served.metric("kvasir_lm_checksum_mismatches_total") == 0);
  wait_until([&] { return at_rest(served); });
}
