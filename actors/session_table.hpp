// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/storage_manager.hpp"
#include "messages/chunk_key.hpp"
#include "messages/session_messages.hpp"
#include "messages/token_hash.hpp"

#include <caf/actor_clock.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvasir {

/// Owns what is known of requests: token hashes, lookups and their leases; and which layouts are
/// in use. Handlers cost O(tokens of the request) and never block.
using session_table_actor = caf::typed_actor<
  /// Errors: `layout_mismatch` while other instances use another layout for this model,
  /// `not_found` if a later incarnation of the instance uses one.
  caf::replies_to<add_layout>::with<void>, caf::replies_to<remove_layout>::with<void>,
  /// Answered once the lookup is under way; its result comes by `take_lookup_result`.
  caf::replies_to<lookup_prompt>::with<void>,
  /// Errors: `not_reserved` if the lookup was replaced or ended while one waited, `busy` if too many
  /// wait already.
  caf::replies_to<take_lookup_result>::with<lookup_result>,
  caf::replies_to<free_lookup>::with<void>, caf::replies_to<end_session>::with<void>,
  /// Errors: `invalid_argument` for a range that does not lie on chunks, or beyond the tokens, or for
  /// a rank beyond the world;
  /// `not_found` if no layout of this model is in use.
  caf::replies_to<resolve_chunks>::with<resolved_chunks>, caf::reacts_to<client_gone>,
  caf::reacts_to<tick>, caf::replies_to<get_session_status>::with<session_status>>;

struct session_options {
  mp::token_hasher hasher;
  std::chrono::milliseconds read_ttl{300'000};    ///< Of a lookup's leases.
  std::chrono::milliseconds session_ttl{600'000}; ///< Of a request that nobody mentions.
  /// Beyond these the idlest sessions go, but never the one that is asked for.
  size_t max_sessions = 65'536;
  uint64_t max_token_bytes = 256ull << 20; ///< Of all sessions.
};

/// Implements `session_table_actor`.
///
/// A lookup's leases belong to an owner of their own, so that whatever ends the lookup (a new one
/// of the same request, `end_session`, its time, its client's end) ends them in one step.
/// Beside the leases a lookup has *tickets*: how many retrieves it announced per chunk and rank. A
/// retrieve uses a ticket up, so that it never rides on another request's leases. Tickets outlive
/// leases: when a retrieve comes late, it succeeds if the chunks happen to be resident still.
class session_table final : public session_table_actor::base {
public:
  session_table(caf::actor_config& config, storage_manager_actor manager,
                session_options options);

  behavior_type make_behavior() override;
  void on_exit() override;
  const char* name() const override { return "session_table"; }

private:
  using time_point = caf::actor_clock::time_point;

  struct lookup {
    owner_id owner = 0;
    uint64_t number = 0; ///< Tells a replaced lookup's late answer apart.
    client_id client = 0;
    std::string model;
    std::string salt;
    uint32_t world_size = 1;
    bool running = true;
    bool consumed = false;
    uint32_t chunks = 0;
    std::vector<uint32_t> tickets; ///< Chunk after chunk, one per rank.
    std::vector<lease_id> leases;  ///< Likewise; 0: ended. Empty: all ended.
    std::vector<mp::chunk_identity> identities;
    time_point leases_end;
    std::vector<caf::typed_response_promise<lookup_result>> waiting;
  };

  struct session {
    explicit session(const mp::token_hasher& hasher) : chain(hasher) {}

    mp::token_chain chain;
    std::optional<lookup> found;
    time_point last_used;
    uint64_t token_bytes = 0;
    std::list<std::string>::iterator by_use;
  };

  struct layout_user {
    uint64_t instance = 0;
    uint64_t incarnation = 0;
  };

  struct layout_use {
    uint64_t digest = 0;
    std::vector<layout_user> users;
  };

  /// Who may wait for one lookup's result.
  static constexpr size_t max_waiting = 64;

  using model_key = std::pair<std::string, uint32_t>;

  caf::result<void> on_add_layout(const add_layout& request);
  void on_remove_layout(const remove_layout& request);
  caf::result<void> on_lookup(lookup_prompt& request);
  void on_prefix_held(const std::string& request_id, uint64_t number, prefix_held& held);
  caf::result<lookup_result> on_take_result(const take_lookup_result& request);
  void on_free(const free_lookup& request);
  caf::result<resolved_chunks> on_resolve(resolve_chunks& request);
  void on_tick();
  session_status status() const;

  session& open_session(const std::string& request_id);
  size_t extend(session& of, const std::vector<uint32_t>& tokens);
  void drop_session(const std::string& request_id);
  void end_lookup(session& of);
  void finish_lookup(lookup& of);

  /// Whether the lookup of this session found chunks `[first, last)` of this very prompt.
  bool announced_by(const session& of, const prompt_range& range, size_t first,
                    size_t last) const;
  const layout_use* find_layout(const std::string& model, uint32_t world_size) const;
  static void use_tickets(lookup& of, uint32_t rank, size_t first, size_t last,
                          resolved_chunks& result);

  storage_manager_actor manager_;
  session_options options_;
  std::unordered_map<std::string, session> sessions_;
  std::list<std::string> by_use_; ///< Request ids, the one not mentioned for longest first.
  /// Request ids of lookups with leases, by the time and number of the lookup.
  std::map<std::pair<time_point, uint64_t>, std::string> lease_ends_;
  std::map<model_key, layout_use> layouts_;
  uint64_t next_number_ = 0;
  session_status counters_; ///< `token_bytes` and the counters are used.
};

} // namespace kvasir
