// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/front_door_messages.hpp"
#include "messages/storage_messages.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// What one asks of a storage manager about the chunks of a prompt: many at once, immutable, each
/// with the chunk before it as its parent. No message carries payload.
namespace kvasir {

/// One chunk that is about to be written. Its parent (the chunk before it, of the same rank) is
/// evicted after it: a prefix without its first chunk is worthless.
struct chunk_claim {
  object_key key;
  object_key parent; ///< Empty: the first chunk of a prompt.
};

/// Room for those of these chunks that are neither resident nor being written. Never waits: what
/// finds no room is answered as such, in order, so that a prefix comes first.
struct reserve_chunks {
  owner_id owner = 0;
  std::string tenant; ///< Whose quota counts; the cache salt.
  object_layout layout;
  uint64_t size_bytes = 0; ///< Of each chunk.
  std::vector<chunk_claim> chunks;
};

enum class chunk_state : uint8_t {
  reserved, ///< The lease is the asker's to write.
  resident, ///< Complete already; its bytes were left alone.
  staged,   ///< Another live reservation of this key exists.
  no_room,  ///< Not even after evicting all that may be evicted, or a budget is used up.
};

struct chunk_reservation {
  chunk_state state = chunk_state::no_room;
  write_lease lease; ///< Only if reserved.
};

/// In the order of `reserve_chunks::chunks`.
struct chunk_reservations {
  std::vector<chunk_reservation> chunks;
};

/// These reservations can never be published any more, but somebody may still write into their
/// slots: the memory stays theirs until the lease ends (`end_leases`, `end_owner`), while the keys
/// are free to be reserved anew.
struct expire_writes {
  std::vector<lease_id> leases;
};

/// Publishes what was written, each object at once and whole. The first complete object of a key
/// stays; a later one is dropped. Leases that are not there, or expired, publish nothing.
struct finish_chunks {
  std::vector<finish_write> writes; ///< Without a checksum (0) if `reader` is set.
  /// If not 0: the checksums are not known yet. Each published object is held for this owner, who
  /// hashes it and says so with `seal_chunks`.
  owner_id reader = 0;
  /// All chunks that the writer asked for, also those that were resident before.
  std::vector<object_key> asked;
};

struct chunks_finished {
  std::vector<uint8_t> resident; ///< 1 or 0, in the order of `finish_chunks::asked`.
  /// In the order of `writes`; id 0 if that lease published nothing, or no `reader` was given.
  std::vector<read_lease> holds;
};

/// Ends holds of `finish_chunks` and records what was hashed. A lease that is not there any more
/// is ignored.
struct seal_chunks {
  std::vector<finish_write> holds; ///< Lease and checksum.
};

/// Holds the longest prefix of chunks of which every rank's object is resident (a lookup).
struct hold_prefix {
  owner_id owner = 0;
  uint32_t width = 1;           ///< Objects per chunk: the ranks.
  std::vector<object_key> keys; ///< Chunk after chunk, `width` keys each.
};

struct prefix_held {
  uint32_t chunks = 0;          ///< Length of the prefix.
  std::vector<lease_id> leases; ///< `chunks * width`, in the order of the keys.
};

/// A hold on each of these, or on none.
struct acquire_chunks {
  owner_id owner = 0;
  std::vector<object_key> keys;
  bool prefix = false; ///< Instead: on as many of the first as are there and may be held.
};

struct chunks_acquired {
  std::vector<read_lease> leases;
};

/// Ends leases of any kind: holds are released, reservations aborted.
struct end_leases {
  std::vector<lease_id> leases;
};

/// Limits what a tenant's objects may take together. Without a limit only the pool does.
struct set_quota {
  std::string tenant;
  uint64_t limit_bytes = 0; ///< 0: no limit.
};

struct get_quotas {};

struct tenant_quota {
  std::string tenant;
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;
};

struct quota_list {
  std::vector<tenant_quota> tenants; ///< Those with objects or a limit.
};

/// What became readable (`stored`) or stopped being so, in the order in which it happened. Only
/// of objects whose key is not of lm:// (it starts with a NUL byte).
struct object_change {
  object_key key;
  bool stored = false;
};

struct objects_changed {
  std::vector<object_change> changes;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, chunk_claim& x) {
  return f(caf::meta::type_name("chunk_claim"), x.key, x.parent);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, reserve_chunks& x) {
  return f(caf::meta::type_name("reserve_chunks"), x.owner, x.tenant, x.layout, x.size_bytes,
           x.chunks);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, chunk_reservation& x) {
  return f(caf::meta::type_name("chunk_reservation"), x.state, x.lease);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, chunk_reservations& x) {
  return f(caf::meta::type_name("chunk_reservations"), x.chunks);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, expire_writes& x) {
  return f(caf::meta::type_name("expire_writes"), x.leases);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, finish_chunks& x) {
  return f(caf::meta::type_name("finish_chunks"), x.writes, x.reader, x.asked);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, chunks_finished& x) {
  return f(caf::meta::type_name("chunks_finished"), x.resident, x.holds);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, seal_chunks& x) {
  return f(caf::meta::type_name("seal_chunks"), x.holds);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, hold_prefix& x) {
  return f(caf::meta::type_name("hold_prefix"), x.owner, x.width, x.keys);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, prefix_held& x) {
  return f(caf::meta::type_name("prefix_held"), x.chunks, x.leases);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, acquire_chunks& x) {
  return f(caf::meta::type_name("acquire_chunks"), x.owner, x.keys, x.prefix);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, chunks_acquired& x) {
  return f(caf::meta::type_name("chunks_acquired"), x.leases);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, end_leases& x) {
  return f(caf::meta::type_name("end_leases"), x.leases);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, set_quota& x) {
  return f(caf::meta::type_name("set_quota"), x.tenant, x.limit_bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, get_quotas&) {
  return f(caf::meta::type_name("get_quotas"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, tenant_quota& x) {
  return f(caf::meta::type_name("tenant_quota"), x.tenant, x.limit_bytes, x.used_bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, quota_list& x) {
  return f(caf::meta::type_name("quota_list"), x.tenants);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, object_change& x) {
  return f(caf::meta::type_name("object_change"), x.key, x.stored);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, objects_changed& x) {
  return f(caf::meta::type_name("objects_changed"), x.changes);
}

} // namespace kvasir

CAF_BEGIN_TYPE_ID_BLOCK(kvasir_chunks, caf::id_block::kvasir_doors::end)

CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::chunk_claim))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::reserve_chunks))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::chunk_reservation))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::chunk_reservations))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::expire_writes))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::finish_chunks))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::chunks_finished))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::seal_chunks))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::hold_prefix))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::prefix_held))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::acquire_chunks))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::chunks_acquired))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::end_leases))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::set_quota))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::get_quotas))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::tenant_quota))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::quota_list))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::object_change))
CAF_ADD_TYPE_ID(kvasir_chunks, (kvasir::objects_changed))

CAF_END_TYPE_ID_BLOCK(kvasir_chunks)
