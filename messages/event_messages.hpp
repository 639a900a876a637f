// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/engine_messages.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// What one asks of the log of KV events. No message carries payload.
namespace kvasir {

/// A chunk became readable on all of its ranks, or ceased to be.
struct kv_event {
  uint64_t seq = 0;
  bool stored = false;
  std::string block_hash;        ///< The chunk's token hash, 32 bytes.
  std::string parent_block_hash; ///< Empty: the prompt's first chunk, or removed.
  std::vector<uint32_t> tokens;  ///< Of the chunk; empty if removed.
};

/// Events of a model from `cursor` on. A read replaces the former one of the same reader.
struct read_kv_events {
  uint64_t reader = 0;
  std::string model;
  uint64_t cursor = 0; ///< `next_cursor` of the last batch, at first 0.
  uint32_t max_events = 1;
  bool wait = false; ///< Answer when there is one.
};

struct kv_event_batch {
  uint64_t incarnation = 0; ///< Of the log: cursors of another one mean nothing here.
  uint64_t next_cursor = 0;
  bool lost = false; ///< Events between `cursor` and these are not to be had any more.
  std::vector<kv_event> events;
};

struct end_kv_reader {
  uint64_t reader = 0;
};

struct get_event_log_status {};

/// Gauges, then counters since start.
struct event_log_status {
  uint64_t readers_waiting = 0;
  uint64_t kept_events = 0;
  uint64_t kept_bytes = 0;
  uint64_t described_bytes = 0; ///< Tokens of chunks that are not yet readable.

  uint64_t stored = 0;
  uint64_t removed = 0;
  uint64_t dropped = 0;     ///< From the history, because of its limit.
  uint64_t undescribed = 0; ///< Stored chunks whose tokens nobody told: not announced.
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, kv_event& x) {
  return f(caf::meta::type_name("kv_event"), x.seq, x.stored, x.block_hash, x.parent_block_hash,
           x.tokens);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, read_kv_events& x) {
  return f(caf::meta::type_name("read_kv_events"), x.reader, x.model, x.cursor, x.max_events,
           x.wait);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, kv_event_batch& x) {
  return f(caf::meta::type_name("kv_event_batch"), x.incarnation, x.next_cursor, x.lost,
           x.events);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, end_kv_reader& x) {
  return f(caf::meta::type_name("end_kv_reader"), x.reader);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, get_event_log_status&) {
  return f(caf::meta::type_name("get_event_log_status"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, event_log_status& x) {
  return f(caf::meta::type_name("event_log_status"), x.readers_waiting, x.kept_events,
           x.kept_bytes, x.described_bytes, x.stored, x.removed, x.dropped, x.undescribed);
}

} // namespace kvasir

CAF_BEGIN_TYPE_ID_BLOCK(kvasir_events, caf::id_block::kvasir_engines::end)

CAF_ADD_TYPE_ID(kvasir_events, (kvasir::kv_event))
CAF_ADD_TYPE_ID(kvasir_events, (kvasir::read_kv_events))
CAF_ADD_TYPE_ID(kvasir_events, (kvasir::kv_event_batch))
CAF_ADD_TYPE_ID(kvasir_events, (kvasir::end_kv_reader))
CAF_ADD_TYPE_ID(kvasir_events, (kvasir::get_event_log_status))
CAF_ADD_TYPE_ID(kvasir_events, (kvasir::event_log_status))

CAF_END_TYPE_ID_BLOCK(kvasir_events)
