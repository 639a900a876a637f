// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/object.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// What one asks of a storage manager, and what it answers. No message carries payload.
namespace kvasir {

/// Whoever holds leases: a connection, an engine instance. Unique while the process lives
/// (`next_owner_id`), never 0. Ending the owner ends all its leases in one step.
using owner_id = uint64_t;

/// One reservation or one read hold. Consumed by finish, abort or release; never reused.
using lease_id = uint64_t;

/// Room for an object that `owner` is about to write (PUT, before its bytes).
struct reserve_write {
  owner_id owner = 0;
  object_key key;
  object_layout layout;
  uint64_t size_bytes = 0;
};

/// The slot to write into. Nobody sees the object before `finish_write`.
struct write_lease {
  lease_id id = 0;
  slot where;
};

/// Publishes what was written; an older object under the key is replaced (PUT, after its last
/// byte). `checksum` is XXH3-64 over the slot's `size_bytes` bytes.
struct finish_write {
  lease_id id = 0;
  uint64_t checksum = 0;
};

/// Gives a reservation back unpublished; an older object under the key stays.
struct abort_write {
  lease_id id = 0;
};

/// A hold on a complete object (GET).
struct acquire_read {
  owner_id owner = 0;
  object_key key;
};

/// The bytes stay as they are until `release_read`, whatever happens to the key meanwhile.
struct read_lease {
  lease_id id = 0;
  slot where;
  object_layout layout;
  uint64_t checksum = 0; ///< XXH3-64 over the slot's bytes, as published.
  bool sealed = true;    ///< False: the checksum is not known yet.
};

/// Ends a read hold. `corrupt` says that the bytes did not match the checksum: the object is
/// dropped, so that nobody else is handed it.
struct release_read {
  lease_id id = 0;
  bool corrupt = false;
};

/// Drops all leases and waiting requests of `owner`. Harmless if it has none.
struct end_owner {
  owner_id owner = 0;
};

/// Are these keys readable now? (EXIST, all those of one read at once.)
struct check_exist {
  std::vector<object_key> keys;
};

struct exist_result {
  std::vector<uint8_t> found; ///< 1 or 0, in the order of `check_exist::keys`.
};

/// A slice of the list of all objects (LIST). Start with cursor 0, go on with `next_cursor`
/// until it is 0. Objects that come or go meanwhile may or may not be listed.
struct list_objects {
  uint64_t cursor = 0;
};

struct object_info {
  object_key key;
  uint64_t size_bytes = 0;
};

struct object_list {
  std::vector<object_info> objects;
  uint64_t next_cursor = 0;
};

/// Drops one object. It becomes invisible at once, its memory is free when its last hold ends.
struct remove_object {
  object_key key;
};

/// Drops all objects: invisible at once, memory freed in slices and as holds end.
struct clear_objects {
  bool force = true; ///< False: what somebody holds to read stays readable.
};

/// Is the manager alive and able to store? (HEALTH.)
struct check_health {};

/// The pool has `usable_bytes` bytes allocated and faulted in from its start on; `complete`
/// when it grows no further. Sent by the pool's grower.
struct pool_grown {
  uint64_t usable_bytes = 0;
  bool complete = false;
};

/// Does any request wait for room? Then a transfer that makes no progress is ended early.
struct check_pressure {};

struct pressure {
  bool requests_wait = false;
};

/// What the manager sends itself to go on with work that it does in slices.
struct continue_work {};

/// Looks whether engines let go what they read without asking; also when one of them is gone. The
/// manager sends it to itself while there is something to wait for.
struct revisit_holds {};

struct get_storage_status {};

/// Gauges, then counters since start. Sizes in bytes of pool memory (padding included).
struct storage_status {
  uint64_t capacity_bytes = 0;
  uint64_t usable_bytes = 0;  ///< Already faulted in; grows to `capacity_bytes` after start.
  uint64_t used_bytes = 0;    ///< By complete, reserved and held objects.
  uint64_t claimed_bytes = 0; ///< By reservations of `reserve_write`, i.e. not readable yet.
  uint64_t held_bytes = 0;    ///< By read holds.
  uint64_t objects = 0;
  uint64_t write_leases = 0; ///< Reservations of all kinds.
  uint64_t read_leases = 0;
  uint64_t waiting = 0; ///< Requests that wait for room.

  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t published = 0;
  uint64_t replaced = 0;
  uint64_t evicted_objects = 0;
  uint64_t evicted_bytes = 0;
  uint64_t removed = 0; ///< By `remove_object` and `clear_objects`.
  uint64_t aborted_writes = 0;
  uint64_t rejected_too_large = 0;
  uint64_t rejected_out_of_memory = 0;
  uint64_t rejected_busy = 0; ///< Too many wait for room, or too much is held for more chunks.
  uint64_t corrupt_objects = 0;
  uint64_t unknown_leases = 0; ///< Finish, abort or release of a lease that is not there.

  uint64_t staged_bytes = 0;   ///< A gauge: by reservations of chunks, expired ones included.
  uint64_t expired_leases = 0; ///< A gauge: expired reservations that keep their memory.

  uint64_t chunks_stored = 0;
  uint64_t chunks_redundant = 0; ///< Finished when their key was complete already.
  uint64_t chunks_late = 0;      ///< Finished after they had expired.
  uint64_t chunks_no_room = 0;   ///< Reservations answered so.
  uint64_t prefix_lookups = 0;
  uint64_t prefix_chunks_asked = 0;
  uint64_t prefix_chunks_held = 0;
  uint64_t prefixes_cut = 0; ///< Lookups that found more than the budget let them hold.

  // Of a pool that engines read without asking; otherwise 0.
  uint64_t indexed_objects = 0; ///< A gauge.
  uint64_t overflowed_sets
    = 0;                      ///< A gauge: parts of the index that cannot list all they should.
  uint64_t limbo_bytes = 0;   ///< A gauge: by objects out of sight that engines still read.
  uint64_t index_refused = 0; ///< Objects that found no place in the index.
  uint64_t skipped_evictions = 0; ///< Victims that stayed because an engine read them.
  uint64_t engine_touches = 0;    ///< Uses of objects that engines told.
  uint64_t touches_overrun = 0;   ///< Times that an engine told more than there is room for.
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, reserve_write& x) {
  return f(caf::meta::type_name("reserve_write"), x.owner, x.key, x.layout, x.size_bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, write_lease& x) {
  return f(caf::meta::type_name("write_lease"), x.id, x.where);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, finish_write& x) {
  return f(caf::meta::type_name("finish_write"), x.id, x.checksum);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, abort_write& x) {
  return f(caf::meta::type_name("abort_write"), x.id);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, acquire_read& x) {
  return f(caf::meta::type_name("acquire_read"), x.owner, x.key);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, read_lease& x) {
  return f(caf::meta::type_name("read_lease"), x.id, x.where, x.layout, x.checksum, x.sealed);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, release_read& x) {
  return f(caf::meta::type_name("release_read"), x.id, x.corrupt);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, end_owner& x) {
  return f(caf::meta::type_name("end_owner"), x.owner);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, check_exist& x) {
  return f(caf::meta::type_name("check_exist"), x.keys);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, exist_result& x) {
  return f(caf::meta::type_name("exist_result"), x.found);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, list_objects& x) {
  return f(caf::meta::type_name("list_objects"), x.cursor);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, object_info& x) {
  return f(caf::meta::type_name("object_info"), x.key, x.size_bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, object_list& x) {
  return f(caf::meta::type_name("object_list"), x.objects, x.next_cursor);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, remove_object& x) {
  return f(caf::meta::type_name("remove_object"), x.key);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, clear_objects& x) {
  return f(caf::meta::type_name("clear_objects"), x.force);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, check_health&) {
  return f(caf::meta::type_name("check_health"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, pool_grown& x) {
  return f(caf::meta::type_name("pool_grown"), x.usable_bytes, x.complete);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, check_pressure&) {
  return f(caf::meta::type_name("check_pressure"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, pressure& x) {
  return f(caf::meta::type_name("pressure"), x.requests_wait);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, continue_work&) {
  return f(caf::meta::type_name("continue_work"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, revisit_holds&) {
  return f(caf::meta::type_name("revisit_holds"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, get_storage_status&) {
  return f(caf::meta::type_name("get_storage_status"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, storage_status& x) {
  return f(caf::meta::type_name("storage_status"), x.capacity_bytes, x.usable_bytes,
           x.used_bytes, x.claimed_bytes, x.held_bytes, x.objects, x.write_leases,
           x.read_leases, x.waiting, x.hits, x.misses, x.published, x.replaced,
           x.evicted_objects, x.evicted_bytes, x.removed, x.aborted_writes,
           x.rejected_too_large, x.rejected_out_of_memory, x.rejected_busy, x.corrupt_objects,
           x.unknown_leases, x.staged_bytes, x.expired_leases, x.chunks_stored,
           x.chunks_redundant, x.chunks_late, x.chunks_no_room, x.prefix_lookups,
           x.prefix_chunks_asked, x.prefix_chunks_held, x.prefixes_cut, x.indexed_objects,
           x.overflowed_sets, x.limbo_bytes, x.index_refused, x.skipped_evictions,
           x.engine_touches, x.touches_overrun);
}

} // namespace kvasir

CAF_BEGIN_TYPE_ID_BLOCK(kvasir, first_custom_type_id)

CAF_ADD_TYPE_ID(kvasir, (kvasir::object_key))
CAF_ADD_TYPE_ID(kvasir, (kvasir::object_layout))
CAF_ADD_TYPE_ID(kvasir, (kvasir::slot))
CAF_ADD_TYPE_ID(kvasir, (kvasir::reserve_write))
CAF_ADD_TYPE_ID(kvasir, (kvasir::write_lease))
CAF_ADD_TYPE_ID(kvasir, (kvasir::finish_write))
CAF_ADD_TYPE_ID(kvasir, (kvasir::abort_write))
CAF_ADD_TYPE_ID(kvasir, (kvasir::acquire_read))
CAF_ADD_TYPE_ID(kvasir, (kvasir::read_lease))
CAF_ADD_TYPE_ID(kvasir, (kvasir::release_read))
CAF_ADD_TYPE_ID(kvasir, (kvasir::end_owner))
CAF_ADD_TYPE_ID(kvasir, (kvasir::check_exist))
CAF_ADD_TYPE_ID(kvasir, (kvasir::exist_result))
CAF_ADD_TYPE_ID(kvasir, (kvasir::list_objects))
CAF_ADD_TYPE_ID(kvasir, (kvasir::object_info))
CAF_ADD_TYPE_ID(kvasir, (kvasir::object_list))
CAF_ADD_TYPE_ID(kvasir, (kvasir::remove_object))
CAF_ADD_TYPE_ID(kvasir, (kvasir::clear_objects))
CAF_ADD_TYPE_ID(kvasir, (kvasir::check_health))
CAF_ADD_TYPE_ID(kvasir, (kvasir::pool_grown))
CAF_ADD_TYPE_ID(kvasir, (kvasir::check_pressure))
CAF_ADD_TYPE_ID(kvasir, (kvasir::pressure))
CAF_ADD_TYPE_ID(kvasir, (kvasir::continue_work))
CAF_ADD_TYPE_ID(kvasir, (kvasir::revisit_holds))
CAF_ADD_TYPE_ID(kvasir, (kvasir::get_storage_status))
CAF_ADD_TYPE_ID(kvasir, (kvasir::storage_status))

CAF_END_TYPE_ID_BLOCK(kvasir)
