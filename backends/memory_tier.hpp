// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/chunk_messages.hpp"
#include "messages/errc.hpp"
#include "messages/storage_messages.hpp"

#include <caf/expected.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

/// Names one object of a tier, also while no key leads to it. Never reused for another object.
using object_handle = uint64_t;

/// What room is asked for.
struct object_claim {
  const object_key& key; ///< Must live during the call only, as the texts below.
  object_layout layout;
  uint64_t size_bytes = 0;
  std::string_view tenant{}; ///< Whose memory it takes; empty for lm://.
  std::string_view parent{}; ///< The bytes of its parent's key; empty if it has none.
};

/// A reserved object: its slot may be written until `publish` or `abort`.
struct reserved_object {
  object_handle handle = 0;
  slot where;
};

/// A complete object; the slot may be read until `release`.
struct held_object {
  object_handle handle = 0;
  slot where;
  object_layout layout;
  uint64_t checksum = 0;
  bool sealed = true; ///< False: the checksum is not known yet.
};

/// Gauges in bytes of memory (padding included) and counters since start.
struct tier_usage {
  uint64_t capacity_bytes = 0;
  uint64_t usable_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t held_bytes = 0;
  uint64_t objects = 0; ///< Readable ones.
  uint64_t published = 0;
  uint64_t replaced = 0;
  uint64_t evicted_objects = 0;
  uint64_t evicted_bytes = 0;
  uint64_t removed = 0;

  /// Of a tier that engines read without asking (`pool_tier::share`); otherwise 0.
  uint64_t indexed_objects = 0; ///< A gauge, also of what a clear hid and a sweep did not free.
  uint64_t overflowed_sets = 0; ///< A gauge: sets of the index with objects that lack an entry.
  uint64_t limbo_bytes = 0;     ///< A gauge: out of sight, but engines read it still.
  uint64_t index_refused = 0;   ///< Objects that found no entry.
  uint64_t skipped_evictions = 0; ///< Victims that stayed because an engine read them.
  uint64_t touches = 0;           ///< Uses that engines told.
  uint64_t touches_overrun = 0;   ///< Times that an engine told more than there is room for.
};

/// Whole objects in memory, each in exactly one state:
///
///   absent --reserve--> reserved --publish--> complete --evict, replace, remove--> evicting
///                       reserved --abort--> absent          evicting --last hold ends-->
///                       absent
///
/// Only `publish` makes an object readable; `abort` is another function, so that nothing that
/// was never written can be read. Several reservations of one key may exist; which one stays
/// is said at `publish`. An object that is held when it leaves the index keeps its memory until its
/// last hold ends: no slot is handed out while somebody may still touch it.
///
/// Parents: an object whose claim named a parent that is readable when the object is published
/// becomes that parent's child. No object is evicted before its children are gone: a prefix
/// without its first chunk is worthless. Removing, dropping, clearing and replacing do not
/// care: the children go on without a parent.
///
/// Tenants: whoever exceeds a limit loses objects first; otherwise it is the tenant that takes
/// the most memory.
///
/// Threading: not thread-safe; belongs to exactly one actor.
/// Blocking: no call waits (disk and remote tiers are asynchronous and another interface).
/// Cost: O(1) per call, but for `reserve`, which may evict up to its budget, `sweep` and `list`,
/// which do a slice of `slice_objects`, and `audit`.
class memory_tier {
public:
  static constexpr size_t slice_objects = 1000;

  virtual ~memory_tier() = default;

  /// Sets a slot aside, evicting up to `evict_budget` objects for it, by which it is lowered.
  /// @returns the object, or
  ///   - `errc::too_large` if it exceeds the usable memory: nothing was evicted,
  ///   - `errc::busy` if the budget is used up: what was evicted stays evicted, call again,
  ///   - `errc::out_of_memory` if nothing (more) may be evicted, of its tenant's objects if that
  ///     one's limit would be exceeded.
  virtual caf::expected<reserved_object> reserve(const object_claim& claim,
                                                 size_t& evict_budget)
    = 0;

  /// Memory that an object of `size_bytes` bytes takes, padding included.
  virtual uint64_t memory_bytes(uint64_t size_bytes) const = 0;

  /// What `publish` does if its key is readable already.
  enum class conflict : uint8_t {
    replace, ///< The older object goes (lm://).
    keep,    ///< The older object stays and the new one is aborted (chunks).
  };

  /// Makes a reserved object readable under its key. Without a checksum it is not sealed.
  /// @returns none, `errc::not_reserved`, or `errc::already_exists` if the older one was kept.
  virtual caf::error publish(object_handle handle, std::optional<uint64_t> checksum,
                             conflict what)
    = 0;

  /// Sets the checksum of an object that was published without; ignored for all others.
  virtual void seal(object_handle handle, uint64_t checksum) = 0;

  /// Gives a reservation back. @returns none, or `errc::not_reserved`.
  virtual caf::error abort(object_handle handle) = 0;

  /// Finds the readable object under `key` and holds it.
  /// @returns the object, or `errc::not_found`.
  virtual caf::expected<held_object> hold(const object_key& key) = 0;

  /// The same for the object behind a handle. No use in the eviction policy's sense.
  virtual caf::expected<held_object> hold(object_handle handle) = 0;

  /// Ends one hold. @returns none, or `errc::not_reserved`.
  virtual caf::error release(object_handle handle) = 0;

  /// Whether `key` is readable; counts as a use for the eviction policy.
  virtual bool contains(const object_key& key) = 0;

  /// The same without counting as a use.
  virtual bool present(const object_key& key) const = 0;

  /// Bytes that holding `key` would add to `held_bytes`: 0 if it is absent or held already.
  virtual uint64_t unheld_bytes(const object_key& key) const = 0;

  /// Makes the object under `key` invisible. @returns false if there was none.
  virtual bool remove(const object_key& key) = 0;

  /// Like `remove`, for the object behind a handle; nothing if it is no longer readable.
  virtual void drop(object_handle handle) = 0;

  /// Makes all complete objects invisible at once, except those behind `keep` (repeats and
  /// handles of objects that are gone do no harm); `sweep` frees them.
  virtual void clear(const std::vector<object_handle>& keep) = 0;

  /// Frees a slice of what `clear` left. @returns true while there is more.
  virtual bool sweep() = 0;

  /// Frees what engines read when it went out of sight and read no more; looks at a slice. Does
  /// nothing unless there is such.
  virtual void revisit() = 0;

  /// Whether there is such.
  virtual bool in_limbo() const = 0;

  virtual object_list list(uint64_t cursor) const = 0;

  /// From now on appends each change of what is readable to `changes`, which must outlive this
  /// tier; nullptr: not any more. What `clear` hid is reported when it is freed, at the latest
  /// by the last `sweep`, and always before a newer object of its key.
  virtual void report_changes(std::vector<object_change>* changes) = 0;

  /// The first `usable_bytes` may be handed out from now on.
  virtual void grow(uint64_t usable_bytes) = 0;

  /// Limits the memory of a tenant's objects; 0: no limit. Objects beyond it stay until one is
  /// reserved. @returns none, or `errc::busy` if there are too many tenants.
  virtual caf::error set_quota(std::string_view tenant, uint64_t limit_bytes) = 0;

  /// The tenants that have objects or a limit.
  virtual std::vector<tenant_quota> quotas() const = 0;

  virtual tier_usage usage() const = 0;

  /// Checks every invariant above over all objects; for tests.
  /// @returns an empty text, or what is wrong.
  virtual std::string audit() const = 0;
};

} // namespace kvasir
