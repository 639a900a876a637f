// More than fits, and the largest there is: what a full kvasird keeps, drops and refuses.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

/// A value of `size` bytes in pieces: neither side of the test holds it as a whole.
constexpr size_t piece_bytes = 1 << 20;

void put_in_pieces(lm_wire& client, const std::string& key, uint64_t size, uint64_t seed) {
  client.send(put_header(key, static_cast<int32_t>(size)).encode());
  bytes piece(piece_bytes);
  for (uint64_t done = 0; done < size; done += piece.size()) {
    piece.resize(std::min<uint64_t>(piece_bytes, size - done));
    fill_value(piece, seed, done / sizeof(uint64_t));
    client.send(piece);
  }
}

bool get_is_exact(lm_wire& client, const std::string& key, uint64_t size, uint64_t seed) {
  client.send(get_header(key).encode());
  auto header = client.receive_header();
  if (header.code != kvasir::lm::return_code::success
      || static_cast<uint64_t>(header.length) != size)
    return false;
  auto exact = true;
  for (uint64_t done = 0; done < size;) {
    auto piece = client.receive(std::min<uint64_t>(piece_bytes, size - done));
    if (piece.empty())
      return false;
    exact = exact && is_value(piece, seed, done / sizeof(uint64_t));
    done += piece.size();
  }
  return exact;
}

bool machine_has(uint64_t needed_bytes, const std::string& what) {
  auto free_bytes = std::min(available_memory_bytes(), free_shared_memory_bytes());
  if (free_bytes >= needed_bytes)
    return true;
  MESSAGE("skipped: " << what << " needs " << needed_bytes << " bytes of memory, there are "
                      << free_bytes);
  return false;
}

} // namespace

TEST_CASE("four times the pool: memory stays bounded, the newest stay, the oldest go") {
  for (std::string policy : {"s3fifo", "lru"}) {
    CAPTURE(policy);
    running_daemon served{{"--pool-size", "256MiB", "--eviction", policy}};
    wait_for_growth(served);
    lm_wire client{served.lm_port()};
    for (uint64_t i = 0; i < 1024; ++i)
      client.send_put(numbered_key("many", i), value_of(i, mib));
    size_t newest = 0;
    size_t oldest = 0;
    for (uint64_t i = 0; i < 1024; ++i) {
      auto there = client.exist(numbered_key("many", i));
      newest += there && i >= 824 ? 1 : 0;
      oldest += there && i < 700 ? 1 : 0;
    }
    CHECK(newest == 200);
    CHECK(oldest == 0);
    if (!sanitized)
      CHECK(stats_of(served.process().pid()).resident_bytes()
            <= 256 * mib * 11 / 10 + 64 * mib);
    CHECK(client.get(numbered_key("many", 1023)) == value_of(1023, mib));
    CHECK(client.healthy());
    CHECK(at_rest(served));
  }
}

TEST_CASE("three times the pool in values of 4 MiB under each policy") {
  for (std::string policy : {"s3fifo", "lru"}) {
    CAPTURE(policy);
    running_daemon served{{"--pool-size", "256MiB", "--eviction", policy}};
    wait_for_growth(served);
    lm_wire client{served.lm_port()};
    for (uint64_t i = 0; i < 192; ++i) {
      client.send_put(numbered_key("large", i), value_of(i, 4 * mib));
      CHECK(client.exist(numbered_key("large", i)));
    }
    for (uint64_t i = 188; i < 192; ++i)
      CHECK(client.get(numbered_key("large", i)) == value_of(i, 4 * mib));
    CHECK(served.metric("kvasir_evicted_objects_total") >= 128);
    CHECK(served.metric("kvasir_pool_used_bytes") <= 256 * mib);
    if (!sanitized)
      CHECK(stats_of(served.process().pid()).resident_bytes() <= 256 * mib * 11 / 10);
  }
}

TEST_CASE("a value of 600 MiB is exact, one byte above the limit is refused") {
  constexpr uint64_t limit = 600 * mib;
  if (!machine_has(4ull << 30, "a value of 600 MiB"))
    return;
  running_daemon served{{"--pool-size", "1300MiB", "--max-object-size", "600MiB"}};
  wait_for_growth(served);
  lm_wire client{served.lm_port(), 60'000};
  put_in_pieces(client, "vast@1@0@1@half", limit, 1);
  CHECK(client.exist("vast@1@0@1@half"));
  CHECK(get_is_exact(client, "vast@1@0@1@half", limit, 1));

  put_in_pieces(client, "vast@1@0@2@half", limit + 1, 2);
  CHECK_FALSE(client.exist("vast@1@0@2@half"));
  CHECK(served.metric("kvasir_lm_dropped_too_large_total") == 1);
  // Also under the key of a good value, which stays.
  lm_wire leaver{served.lm_port()};
  leaver.send(put_header("vast@1@0@1@half", INT32_MAX).encode());
  leaver.send(value_of(3, 1000));
  leaver.reset();
  wait_until([&] { return served.metric("kvasir_lm_dropped_too_large_total") == 2; });
  CHECK(client.exist("vast@1@0@1@half"));
  CHECK(at_rest(served));
}

TEST_CASE("2 GiB - 1 announced where that much is allowed, and not sent") {
  if (!machine_has(8ull << 30, "a limit of 2 GiB - 1"))
    return;
  running_daemon served{
    {"--pool-size", "4GiB", "--max-object-size", std::to_string(INT32_MAX)}};
  lm_wire leaver{served.lm_port()};
  leaver.send(put_header("vast@1@0@1@half", INT32_MAX).encode());
  leaver.send(value_of(1, 100'000));
  wait_until(
    [&] {
      auto storage = status_of(served)["storage"];
      return storage["claimed_bytes"] >= uint64_t{INT32_MAX} || storage["waiting"] == 1;
    },
    60s);
  leaver.reset();
  wait_until([&] { return at_rest(served); });
  lm_wire client{served.lm_port()};
  CHECK_FALSE(client.exist("vast@1@0@1@half"));
  CHECK(client.put("small@1@0@1@half", value_of(2, 1000)));
  CHECK(served.metric("kvasir_lm_torn_puts_total") == 1);
}
