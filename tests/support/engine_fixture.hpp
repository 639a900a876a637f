// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/engine.hpp"
#include "support/storage_fixture.hpp"

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace kvasir::test {

using namespace std::chrono_literals;

inline constexpr uint32_t chunk_tokens = 4;

using prompt = std::vector<uint32_t>;

/// A prompt of whole chunks that shares nothing with one of another seed.
inline prompt make_prompt(uint32_t seed, size_t chunks) {
  prompt result;
  for (size_t i = 0; i < chunks * chunk_tokens; ++i)
    result.push_back(seed * 1'000 + static_cast<uint32_t>(i));
  return result;
}

inline mp::kv_layout page_layout(tensor_dtype dtype = tensor_dtype::float16) {
  auto hidden = static_cast<uint32_t>(page / chunk_tokens / item_size_bytes(dtype));
  return {dtype, true, 1, chunk_tokens, hidden, chunk_tokens};
}

/// A storage manager, a session table, and engines whose chunks are one page each, on the
/// deterministic scheduler and its clock.
class engine_fixture : public storage_fixture {
public:
  static setup roomy(uint64_t pages) {
    setup how;
    how.pages = pages;
    how.options.max_staged_bytes = pages * page;
    how.options.max_prefix_held_bytes = pages * page;
    return how;
  }

  explicit engine_fixture(uint64_t pages = 16) : storage_fixture(roomy(pages)) {
    sessions = sim.system().spawn<session_table>(manager(), usual_sessions());
    engine_setup.manager = manager();
    engine_setup.shared = true;
    engine_setup.write_ttl = 60s;
    engine_setup.reap_after = 30s;
    engine_setup.max_handed_out_bytes = pages * page;
  }

  ~engine_fixture() {
    // A promise that is never kept would keep its engine.
    for (auto& [instance, actor] : engines)
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    engines.clear();
    caf::anon_send_exit(sessions, caf::exit_reason::user_shutdown);
    sessions = nullptr;
    engine_setup.manager = nullptr;
    sim.run();
  }

  /// @param hash_bits less than 256: the hashes of different tokens collide
  static session_options usual_sessions(unsigned hash_bits = 256) {
    auto algorithm = mp::token_hash_algorithm::blake3;
    session_options result{
      mp::token_hasher{algorithm, mp::none_hash(algorithm, ""), chunk_tokens, hash_bits}};
    result.read_ttl = 300s;
    result.session_ttl = 600s;
    return result;
  }

  /// Another session table, that asks `through` instead of the manager.
  /// @pre no engine is there yet
  void replace_sessions(const storage_manager_actor& through, const session_options& options) {
    caf::anon_send_exit(sessions, caf::exit_reason::user_shutdown);
    sessions = sim.system().spawn<session_table>(through, options);
    sim.run();
  }

  session_status session_counts() {
    auto result = sim.ask<session_status>(sessions, get_session_status{});
    REQUIRE(result);
    return *result;
  }

  caf::expected<void> enroll(uint64_t instance, const mp::kv_layout& layout = page_layout(),
                             uint32_t world_size = 1) {
    auto& actor = engines[instance];
    if (!actor)
      actor = sim.system().spawn<engine>(instance, sessions, engine_setup);
    return sim.ask(actor, register_engine{"model", world_size, layout, {}, 0});
  }

  static prompt_range range(const std::string& request, const prompt& tokens, size_t first,
                            size_t last, uint32_t rank = 0, uint32_t world_size = 1) {
    return {"model",
            world_size,
            rank,
            "",
            request,
            tokens,
            first * chunk_tokens,
            last * chunk_tokens};
  }

  template <class Result, class Message>
  caf::expected<Result> tell(uint64_t instance, Message message) {
    auto result = sim.ask<Result>(engines.at(instance), std::move(message));
    CHECK(tier().audit() == "");
    return result;
  }

  store_plan prepare(uint64_t instance, const prompt_range& what) {
    auto plan = tell<store_plan>(instance, prepare_store{what});
    REQUIRE(plan);
    return *plan;
  }

  /// Commits, and hashes what the engine wrote.
  bool commit(uint64_t instance, const prompt_range& what) {
    auto result = tell<store_outcome>(instance, commit_store{what});
    REQUIRE(result);
    seal_chunks sealed;
    for (auto& lease : result->unsealed)
      sealed.holds.push_back({lease.id, 7});
    if (!sealed.holds.empty())
      CHECK(ask(std::move(sealed)));
    return result->stored;
  }

  bool put(uint64_t instance, const std::string& request, const prompt& tokens) {
    auto what = range(request, tokens, 0, tokens.size() / chunk_tokens);
    return prepare(instance, what).how == transfer::none || commit(instance, what);
  }

  uint32_t look_up(const std::string& request, const prompt& tokens, uint32_t readers = 1,
                   uint32_t world_size = 1, const std::string& salt = "",
                   client_id client = 0) {
    CHECK(sim.ask(sessions,
                  lookup_prompt{client, "model", world_size, salt, request, tokens, readers}));
    auto result = sim.ask<lookup_result>(sessions, take_lookup_result{request, true});
    REQUIRE(result);
    CHECK(tier().audit() == "");
    return result->chunks;
  }

  /// Prepares a retrieve. @returns whether it succeeded.
  bool get(uint64_t instance, const prompt_range& what) {
    auto plan = tell<retrieve_plan>(instance, prepare_retrieve{what});
    REQUIRE(plan);
    if (plan->transfer_id != 0)
      caf::anon_send(engines.at(instance), finish_inline_retrieve{plan->transfer_id, {}});
    sim.run();
    return plan->success;
  }

  void end(const std::string& request) { CHECK(sim.ask(sessions, end_session{request})); }

  void pass(std::chrono::seconds time) {
    sim.scheduler().advance_time(time);
    caf::anon_send(sessions, tick{});
    sim.run();
    for (auto& [instance, actor] : engines)
      CHECK(sim.ask<liveness>(actor, check_liveness{}));
  }

  liveness look(uint64_t instance) {
    auto result = tell<liveness>(instance, check_liveness{});
    REQUIRE(result);
    return *result;
  }

  uint64_t leases() {
    auto now = status();
    return now.write_leases + now.read_leases;
  }

  session_table_actor sessions;
  instance_options engine_setup;
  std::map<uint64_t, engine_actor> engines;
};

} // namespace kvasir::test
