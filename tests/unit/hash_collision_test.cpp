#include "backends/checksum.hpp"
#include "support/engine_fixture.hpp"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <vector>

/// Token hashes cut to 8 bits: what has another's hash must read as a miss, never as its bytes.

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr unsigned hash_bits = 8;

class collision_fixture : public engine_fixture {
public:
  collision_fixture() : engine_fixture(1024) {
    replace_sessions(manager(), usual_sessions(hash_bits));
    REQUIRE(enroll(1));
    find_collision();
  }

  static mp::token_hash hash_of(const prompt& tokens) {
    mp::token_chain chain{usual_sessions(hash_bits).hasher};
    return chain.chunk(chain.extend(tokens) - 1).hash;
  }

  /// Stands for what an engine computes for a prompt.
  static uint64_t content_of(const prompt& tokens) {
    return checksum(std::as_bytes(std::span{tokens}));
  }

  bool store(const std::string& request, const prompt& tokens) {
    auto what = range(request, tokens, 0, tokens.size() / chunk_tokens);
    prepare(1, what);
    auto result = tell<store_outcome>(1, commit_store{what});
    REQUIRE(result);
    seal_chunks sealed;
    for (auto& lease : result->unsealed)
      sealed.holds.push_back({lease.id, content_of(tokens)});
    CHECK(ask(std::move(sealed)));
    return result->stored;
  }

  /// @returns what the prompt's last chunk contains, or nothing for a miss.
  std::optional<uint64_t> retrieve(const std::string& request, const prompt& tokens) {
    auto what = range(request, tokens, 0, tokens.size() / chunk_tokens);
    auto plan = tell<retrieve_plan>(1, prepare_retrieve{what});
    REQUIRE(plan);
    if (!plan->success)
      return std::nullopt;
    if (plan->transfer_id != 0)
      caf::anon_send(engines.at(1), finish_inline_retrieve{plan->transfer_id, {}});
    CHECK(tell<void>(1, commit_retrieve{what}));
    return plan->chunks.back().checksum;
  }

  /// Different first chunks of one hash.
  prompt one;
  prompt other;
  prompt third;

private:
  void find_collision() {
    std::map<mp::token_hash, std::vector<prompt>> seen;
    for (uint32_t seed = 1; third.empty(); ++seed) {
      auto tokens = make_prompt(seed, 1);
      auto& equal = seen[hash_of(tokens)];
      equal.push_back(tokens);
      if (equal.size() < 3)
        continue;
      one = equal[0];
      other = equal[1];
      third = equal[2];
    }
  }
};

} // namespace

TEST_SUITE_BEGIN("hash collisions");

TEST_CASE_FIXTURE(collision_fixture, "300 chunks that share 256 hashes keep their own bytes") {
  constexpr uint32_t count = 300;
  std::map<mp::token_hash, int> hashes;
  for (uint32_t i = 0; i < count; ++i) {
    REQUIRE(store("w" + std::to_string(i), make_prompt(i, 1)));
    ++hashes[hash_of(make_prompt(i, 1))];
  }
  REQUIRE(hashes.size() < count);
  size_t would_hit = 0;
  for (uint32_t i = 0; i < 2 * count; ++i) {
    auto tokens = make_prompt(i, 1);
    auto stored = i < count;
    would_hit += !stored && hashes.contains(hash_of(tokens));
    CHECK(look_up("r", tokens) == (stored ? 1 : 0));
    auto got = retrieve("r", tokens);
    CHECK(got == (stored ? std::optional{content_of(tokens)} : std::nullopt));
  }
  CHECK(would_hit > 100); // Otherwise this shows nothing.
  end("r");
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(collision_fixture, "a chunk is not taken for stored because another is") {
  REQUIRE(hash_of(one) == hash_of(other));
  REQUIRE(hash_of(one) == hash_of(third));
  REQUIRE(store("w", one));
  CHECK(look_up("r", other) == 0);
  CHECK(prepare(1, range("w2", other, 0, 1)).slots.size() == 1);
  // Nor because another is on its way.
  CHECK(prepare(1, range("w3", third, 0, 1)).slots.size() == 1);
}

TEST_CASE_FIXTURE(collision_fixture, "equal chunks behind a collision are different chunks") {
  auto behind = make_prompt(7'000, 2);
  auto first = one;
  auto second = other;
  first.insert(first.end(), behind.begin(), behind.end());
  second.insert(second.end(), behind.begin(), behind.end());
  REQUIRE(hash_of(first) == hash_of(second));
  REQUIRE(store("w", first));
  CHECK(look_up("r", second) == 0);
  REQUIRE(store("w2", second));
  CHECK(look_up("r", second) == 3);
  CHECK(retrieve("r", second) == content_of(second));
  CHECK(look_up("r", first) == 3);
  CHECK(retrieve("r", first) == content_of(first));
}

TEST_CASE_FIXTURE(collision_fixture, "a request id that comes back with a colliding prompt") {
  REQUIRE(store("w", one));
  REQUIRE(look_up("r", one) == 1);
  SUBCASE("does not retrieve on the former one's tickets") {
    REQUIRE(store("w", other));
    CHECK_FALSE(retrieve("r", other));
    CHECK(retrieve("r", one) == content_of(one));
  }
  SUBCASE("does not free the former one's leases") {
    CHECK(sim.ask(sessions, free_lookup{range("r", other, 0, 1), 1}));
    CHECK(session_counts().unlock_misses == 1);
    CHECK(leases() == 1);
  }
  SUBCASE("does not commit the former one's store") {
    REQUIRE(prepare(1, range("r", other, 0, 1)).slots.size() == 1);
    CHECK_FALSE(commit(1, range("r", third, 0, 1)));
    CHECK(look_up("r2", third) == 0);
    CHECK(commit(1, range("r", other, 0, 1)));
  }
}

TEST_SUITE_END();
