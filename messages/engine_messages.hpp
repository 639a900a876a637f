// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/kv_layout.hpp"
#include "messages/session_messages.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// What one asks of an engine's actor. No message carries payload.
namespace kvasir {

/// A process of this host: the number alone would be taken again.
struct process_id {
  int32_t pid = 0; ///< 0: not visible from here.
  uint64_t start_time = 0;

  friend bool operator==(const process_id&, const process_id&) = default;
};

struct register_engine {
  std::string model;
  uint32_t world_size = 1;
  mp::kv_layout layout;
  process_id process;
  client_id client = 0;
};

/// Ends the registration; nothing of its slots is touched by the engine any more.
struct unregister_engine {};

/// A sign of life that is not a store or a retrieve.
struct engine_ping {};

struct prepare_store {
  prompt_range range;
};

enum class transfer : uint8_t {
  none,        ///< Nothing to do.
  shared,      ///< The engine reads or writes the slots itself.
  inline_data, ///< The bytes travel in the message.
};

/// A slot for the chunk at this place of the range.
struct chunk_slot {
  uint32_t index = 0;
  lease_id lease = 0;
  slot where;
};

struct store_plan {
  transfer how = transfer::none;
  std::vector<chunk_slot> slots; ///< If shared.
};

/// The engine wrote its slots.
struct commit_store {
  prompt_range range;
};

struct store_outcome {
  bool stored = false; ///< Every chunk that was asked for is resident now.
  /// Published, but not hashed yet: hash them, then `seal_chunks`.
  std::vector<read_lease> unsealed;
};

/// One tensor of an inline store, as it came.
struct inline_tensor {
  tensor_dtype dtype = tensor_dtype::float16;
  std::vector<uint64_t> shape;
};

/// The engine sent its chunks along; where do they go?
struct begin_inline_store {
  prompt_range range;
  std::vector<inline_tensor> chunks;
};

struct inline_store_plan {
  uint64_t transfer_id = 0; ///< 0: nothing to copy, `stored` is the result.
  bool stored = false;
  std::vector<chunk_slot> slots;
};

/// The copies are done. Exactly one for each plan with a `transfer_id`, also if a copy failed.
struct finish_inline_store {
  uint64_t transfer_id = 0;
  std::vector<finish_write> writes;
};

struct prepare_retrieve {
  prompt_range range;
};

struct retrieve_plan {
  bool success = false;
  bool give_slots = false;
  /// Send the bytes too. Not 0: `finish_inline_retrieve` must follow, exactly once.
  uint64_t transfer_id = 0;
  std::vector<read_lease> chunks;
};

/// The copies are done; these chunks turned out to be corrupt.
struct finish_inline_retrieve {
  uint64_t transfer_id = 0;
  std::vector<lease_id> corrupt;
};

struct commit_retrieve {
  prompt_range range;
};

/// How the engine reaches the pool; learned, since nobody says so.
struct attach_seen {
  bool attached = false;
};

/// Its connection is gone. It may come back by another.
struct engine_disconnected {};

/// Is it alive, and does it still hold slots?
struct check_liveness {};

struct liveness {
  bool registered = false;
  /// Reaped, but slots are still handed out: does this process still map the pool? Answer by
  /// `fence_engine` if it does not, or cannot be seen.
  bool wants_fence = false;
  bool forgotten = false; ///< Nothing is left of it, and it was silent for long.
  process_id process;
};

/// The process cannot touch the pool any more: all its slots are free.
struct fence_engine {};

struct get_engine_status {};

struct engine_status {
  uint64_t instance = 0;
  std::string model;
  uint32_t world_size = 0;
  mp::kv_layout layout;
  bool registered = false;
  bool inline_only = false;
  int32_t pid = 0;
  uint64_t handed_out_bytes = 0;
  uint64_t quarantined_bytes = 0;
  uint64_t pending_writes = 0;
  uint64_t pending_reads = 0;

  uint64_t stores = 0;        ///< Commits that were answered with true,
  uint64_t stores_failed = 0; ///< and with false.
  uint64_t store_bytes = 0;
  uint64_t retrieves = 0;
  uint64_t retrieves_failed = 0;
  uint64_t retrieve_bytes = 0;
  uint64_t no_room = 0;         ///< Chunks that were asked for and not reserved.
  uint64_t over_limit = 0;      ///< Requests beyond the bytes one instance may hold.
  uint64_t late_commits = 0;    ///< Of reservations that had expired.
  uint64_t skipped_shape = 0;   ///< Inline chunks of another shape or dtype,
  uint64_t skipped_missing = 0; ///< and those that were not sent.
  uint64_t expired_writes = 0;
  uint64_t reaped = 0;
  uint64_t revived = 0;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, process_id& x) {
  return f(caf::meta::type_name("process_id"), x.pid, x.start_time);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, register_engine& x) {
  return f(caf::meta::type_name("register_engine"), x.model, x.world_size, x.layout, x.process,
           x.client);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, unregister_engine&) {
  return f(caf::meta::type_name("unregister_engine"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, engine_ping&) {
  return f(caf::meta::type_name("engine_ping"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, prepare_store& x) {
  return f(caf::meta::type_name("prepare_store"), x.range);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, chunk_slot& x) {
  return f(caf::meta::type_name("chunk_slot"), x.index, x.lease, x.where);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, store_plan& x) {
  return f(caf::meta::type_name("store_plan"), x.how, x.slots);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, commit_store& x) {
  return f(caf::meta::type_name("commit_store"), x.range);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, store_outcome& x) {
  return f(caf::meta::type_name("store_outcome"), x.stored, x.unsealed);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, inline_tensor& x) {
  return f(caf::meta::type_name("inline_tensor"), x.dtype, x.shape);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, begin_inline_store& x) {
  return f(caf::meta::type_name("begin_inline_store"), x.range, x.chunks);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, inline_store_plan& x) {
  return f(caf::meta::type_name("inline_store_plan"), x.transfer_id, x.stored, x.slots);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, finish_inline_store& x) {
  return f(caf::meta::type_name("finish_inline_store"), x.transfer_id, x.writes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, prepare_retrieve& x) {
  return f(caf::meta::type_name("prepare_retrieve"), x.range);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, retrieve_plan& x) {
  return f(caf::meta::type_name("retrieve_plan"), x.success, x.give_slots, x.transfer_id,
           x.chunks);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, finish_inline_retrieve& x) {
  return f(caf::meta::type_name("finish_inline_retrieve"), x.transfer_id, x.corrupt);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, commit_retrieve& x) {
  return f(caf::meta::type_name("commit_retrieve"), x.range);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, attach_seen& x) {
  return f(caf::meta::type_name("attach_seen"), x.attached);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, engine_disconnected&) {
  return f(caf::meta::type_name("engine_disconnected"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, check_liveness&) {
  return f(caf::meta::type_name("check_liveness"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, liveness& x) {
  return f(caf::meta::type_name("liveness"), x.registered, x.wants_fence, x.forgotten,
           x.process);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, fence_engine&) {
  return f(caf::meta::type_name("fence_engine"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, get_engine_status&) {
  return f(caf::meta::type_name("get_engine_status"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, engine_status& x) {
  return f(caf::meta::type_name("engine_status"), x.instance, x.model, x.world_size, x.layout,
           x.registered, x.inline_only, x.pid, x.handed_out_bytes, x.quarantined_bytes,
           x.pending_writes, x.pending_reads, x.stores, x.stores_failed, x.store_bytes,
           x.retrieves, x.retrieves_failed, x.retrieve_bytes, x.no_room, x.over_limit,
           x.late_commits, x.skipped_shape, x.skipped_missing, x.expired_writes, x.reaped,
           x.revived);
}

namespace mp {

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, kv_layout& x) {
  return f(caf::meta::type_name("kv_layout"), x.dtype, x.single_plane, x.layers, x.slots,
           x.hidden, x.block_size);
}

} // namespace mp

} // namespace kvasir

CAF_BEGIN_TYPE_ID_BLOCK(kvasir_engines, caf::id_block::kvasir_sessions::end)

CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::process_id))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::mp::kv_layout))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::register_engine))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::unregister_engine))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::engine_ping))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::prepare_store))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::chunk_slot))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::store_plan))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::commit_store))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::store_outcome))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::inline_tensor))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::begin_inline_store))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::inline_store_plan))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::finish_inline_store))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::prepare_retrieve))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::retrieve_plan))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::finish_inline_retrieve))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::commit_retrieve))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::attach_seen))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::engine_disconnected))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::check_liveness))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::liveness))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::fence_engine))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::get_engine_status))
CAF_ADD_TYPE_ID(kvasir_engines, (kvasir::engine_status))

CAF_END_TYPE_ID_BLOCK(kvasir_engines)
