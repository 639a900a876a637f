// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/chunk_key.hpp"
#include "messages/event_messages.hpp"

#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <array>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

namespace kvasir {

/// Knows which chunks came and went, for routers that send a prompt where its prefix is.
using kv_event_log_actor = caf::typed_actor<
  caf::reacts_to<describe_chunks>, caf::reacts_to<objects_changed>,
  /// Errors: `not_reserved` if another read of the same reader replaced this one.
  caf::replies_to<read_kv_events>::with<kv_event_batch>, caf::reacts_to<end_kv_reader>,
  caf::replies_to<get_event_log_status>::with<event_log_status>>;

struct event_log_options {
  uint64_t incarnation = 1;
  size_t max_events = 32'768;
  uint64_t max_bytes = 64ull << 20; ///< Of kept events, tokens mostly.
  /// Of the tokens of chunks that are not yet readable.
  uint64_t max_described_bytes = 64ull << 20;
  size_t max_partial = 65'536;      ///< Chunks that some ranks have and others have not.
  size_t max_readers = 1'024;
};

/// Implements `kv_event_log_actor`. Records nothing before the first reader came, and then only
/// what fits; a reader that misses something is told so. (A chunk that nobody described is not
/// missed: it is stored, but never announced.)
///
/// A chunk is stored when the last of its ranks is, and removed when the first goes. Only chunks
/// that are partly there need a note: without one a chunk is on all ranks or on none, and which
/// of them the next change tells.
class kv_event_log final : public kv_event_log_actor::base {
public:
  kv_event_log(caf::actor_config& config, event_log_options options);

  behavior_type make_behavior() override;
  void on_exit() override;
  const char* name() const override { return "kv_event_log"; }

private:
  using rank_set = std::array<uint64_t, 4>;

  struct description {
    std::vector<uint32_t> tokens;
    std::string parent_hash;
    std::list<std::string>::iterator age{}; ///< In `described_by_age_`.
  };

  struct record {
    std::string model;
    kv_event event;
  };

  struct waiting_reader {
    read_kv_events request;
    caf::typed_response_promise<kv_event_batch> promise;
  };

  void on_described(const describe_chunks& what);
  void describe(std::string chunk, description what);
  std::optional<description> take_description(const std::string& chunk);
  void on_changed(const object_change& what);
  caf::result<kv_event_batch> on_read(const read_kv_events& request);
  kv_event_batch batch_for(const read_kv_events& request) const;
  void add(std::string model, kv_event event);
  void drop_oldest();
  void serve_waiting();
  void lose_everything();

  event_log_options options_;
  bool recording_ = false; ///< Somebody read once.
  uint64_t next_seq_ = 0;
  std::deque<record> records_; ///< The last has `next_seq_ - 1`, without gaps.
  std::unordered_map<std::string, description> described_; ///< By chunk, any rank.
  std::list<std::string> described_by_age_;
  std::unordered_map<std::string, rank_set> partial_; ///< Ranks that have the chunk.
  std::unordered_map<uint64_t, waiting_reader> waiting_;
  event_log_status counters_;
};

} // namespace kvasir
