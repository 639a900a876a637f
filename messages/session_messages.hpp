// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/chunk_messages.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// What one asks of the session table: prompts, their names and their leases. No message carries
/// payload.
///
/// The words are LMCache's: a *lookup* takes leases on the longest resident prefix of a prompt; a
/// *retrieve* hands that prefix to a worker; a *store* takes chunks from it. A worker is one rank of
/// an engine *instance*; a *request* is one prompt's way through the engine.
namespace kvasir {

/// A connection of the MP door, as long as it lives. 0: none.
using client_id = uint64_t;

/// Which chunks of which prompt: tokens `[start, end)` of one rank. The token list is always the
/// whole prompt so far, because a chunk's name depends on all tokens before it.
struct prompt_range {
  std::string model;
  uint32_t world_size = 1;
  uint32_t rank = 0;
  std::string salt; ///< Isolates tenants from each other.
  std::string request_id;
  std::vector<uint32_t> tokens;
  uint64_t start = 0; ///< Multiples of the chunk size, `start <= end <= tokens.size()`.
  uint64_t end = 0;
};

/// An instance uses this layout for (model, world size) from now on.
struct add_layout {
  uint64_t instance = 0;
  /// Which of the instance's actors says so. While it unregisters by one it may register by a later
  /// one, whose number is larger; what the former says then counts no more.
  uint64_t incarnation = 0;
  std::string model;
  uint32_t world_size = 1;
  uint64_t layout_digest = 0;
};

struct remove_layout {
  uint64_t instance = 0;
  uint64_t incarnation = 0;
};

/// Looks the prompt's first `tokens.size()` tokens up, of all ranks. A former lookup of the same
/// request is replaced, its leases end.
struct lookup_prompt {
  client_id client = 0; ///< When it is gone, the leases end.
  std::string model;
  uint32_t world_size = 1;
  std::string salt;
  std::string request_id;
  std::vector<uint32_t> tokens;
  uint32_t readers = 1; ///< Retrieves per chunk and rank that will follow.
};

/// The result of a lookup, once: asking consumes it.
struct take_lookup_result {
  std::string request_id;
  bool wait = false; ///< Answer when the lookup is done, instead of `running`.
};

struct lookup_result {
  bool running = false;
  uint32_t chunks = 0; ///< 0 also for a request that is not known.
};

/// `readers` retrieves of these chunks will not follow, on no rank.
struct free_lookup {
  prompt_range range; ///< Its rank means nothing.
  uint32_t readers = 1;
};

struct end_session {
  std::string request_id;
};

/// The names of a range's chunks.
struct resolve_chunks {
  prompt_range range;
  uint64_t layout_digest = 0; ///< That of the asking instance.
  bool with_tokens = false;
  /// Also use up one retrieve per chunk that a lookup of this request announced.
  bool for_retrieve = false;
};

struct resolved_chunks {
  std::vector<object_key> keys;
  std::vector<uint32_t> tokens; ///< Of these chunks, if asked for.
  object_key parent;            ///< Of the first; empty if that is the prompt's first chunk.
  /// Whether a lookup of this request announced the retrieve of all these chunks.
  bool announced = false;
  /// Leases of the lookup that are not needed any more once the retrieve has its own.
  std::vector<lease_id> spent;
};

/// The connection that asked for lookups is gone.
struct client_gone {
  client_id client = 0;
};

/// Time passed: end what expired.
struct tick {};

struct get_session_status {};

/// Gauges, then counters since start.
struct session_status {
  uint64_t sessions = 0;
  uint64_t lookups_open = 0; ///< Whose result or leases are still there.
  uint64_t layouts = 0;
  uint64_t token_bytes = 0;

  uint64_t lookups = 0;
  uint64_t lookup_chunks = 0; ///< Asked for.
  uint64_t hit_chunks = 0;
  uint64_t hashed_chunks = 0;
  uint64_t unlock_misses = 0; ///< Chunks freed that no lookup of that request held.
  uint64_t leases_expired = 0;
  uint64_t sessions_expired = 0;
  uint64_t sessions_dropped = 0; ///< Because of the limit on sessions and their tokens.
  uint64_t layouts_refused = 0;
};

/// What the event log is told before these chunks become readable.
struct describe_chunks {
  std::vector<object_key> keys;
  object_key parent;            ///< Of the first; empty if that is the prompt's first chunk.
  std::vector<uint32_t> tokens; ///< The same number for each.
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, prompt_range& x) {
  return f(caf::meta::type_name("prompt_range"), x.model, x.world_size, x.rank, x.salt,
           x.request_id, x.tokens, x.start, x.end);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, add_layout& x) {
  return f(caf::meta::type_name("add_layout"), x.instance, x.incarnation, x.model, x.world_size,
           x.layout_digest);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, remove_layout& x) {
  return f(caf::meta::type_name("remove_layout"), x.instance, x.incarnation);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, lookup_prompt& x) {
  return f(caf::meta::type_name("lookup_prompt"), x.client, x.model, x.world_size, x.salt,
           x.request_id, x.tokens, x.readers);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, take_lookup_result& x) {
  return f(caf::meta::type_name("take_lookup_result"), x.request_id, x.wait);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, lookup_result& x) {
  return f(caf::meta::type_name("lookup_result"), x.running, x.chunks);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, free_lookup& x) {
  return f(caf::meta::type_name("free_lookup"), x.range, x.readers);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, end_session& x) {
  return f(caf::meta::type_name("end_session"), x.request_id);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, resolve_chunks& x) {
  return f(caf::meta::type_name("resolve_chunks"), x.range, x.layout_digest, x.with_tokens,
           x.for_retrieve);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, resolved_chunks& x) {
  return f(caf::meta::type_name("resolved_chunks"), x.keys, x.tokens, x.parent, x.announced,
           x.spent);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, client_gone& x) {
  return f(caf::meta::type_name("client_gone"), x.client);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, tick&) {
  return f(caf::meta::type_name("tick"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, get_session_status&) {
  return f(caf::meta::type_name("get_session_status"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, session_status& x) {
  return f(caf::meta::type_name("session_status"), x.sessions, x.lookups_open, x.layouts,
           x.token_bytes, x.lookups, x.lookup_chunks, x.hit_chunks, x.hashed_chunks,
           x.unlock_misses, x.leases_expired, x.sessions_expired, x.sessions_dropped,
           x.layouts_refused);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, describe_chunks& x) {
  return f(caf::meta::type_name("describe_chunks"), x.keys, x.parent, x.tokens);
}

} // namespace kvasir

CAF_BEGIN_TYPE_ID_BLOCK(kvasir_sessions, caf::id_block::kvasir_chunks::end)

CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::prompt_range))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::add_layout))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::remove_layout))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::lookup_prompt))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::take_lookup_result))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::lookup_result))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::free_lookup))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::end_session))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::resolve_chunks))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::resolved_chunks))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::client_gone))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::tick))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::get_session_status))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::session_status))
CAF_ADD_TYPE_ID(kvasir_sessions, (kvasir::describe_chunks))

CAF_END_TYPE_ID_BLOCK(kvasir_sessions)
