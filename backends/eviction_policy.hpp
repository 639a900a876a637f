// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace kvasir {

/// Decides which object leaves the memory tier next. Objects are 32-bit numbers that the caller
/// gives out, small and dense (a state record lies at each number below the largest seen).
///
///   absent --insert--> queued --victim--> absent (chosen: the caller evicts it)
///                      queued --park, or victim while held--> parked --release--> queued
///                      queued, parked --remove--> absent
///
/// Holds are the caller's business: taking or ending one costs the policy nothing. Only when
/// `victim` meets an object that is held does it leave the queue (parked), and only then does
/// the end of its last hold (`release`) put it back. So no request walks over held objects
/// twice, and `victim` is amortised O(1).
///
/// Threading: not thread-safe; belongs to exactly one actor.
/// Blocking: no call waits. Memory: 16-24 bytes per number, in chunks that never move.
/// Errors: none; operations on a number that is absent do nothing, `insert` of a present one
/// moves it as if it had been removed first.
class eviction_policy {
public:
  using object_id = uint32_t;

  /// True for an object that must not be evicted now: it has leases, or resident children.
  /// Called once per candidate; must not call the policy.
  using held_predicate = std::function<bool(object_id)>;

  /// Where a parked object re-enters.
  enum class reentry : uint8_t {
    recent, ///< As one just used: a reader held it.
    next,   ///< As the next candidate: it only waited for its children, which are gone. With
            ///< `recent`, a dead chain of n chunks would need n rounds to leave the cache.
  };

  virtual ~eviction_policy() = default;

  /// A new object became evictable. `key_hash` is any well-mixed hash of its key; by it the
  /// policy recognises an object that was evicted lately.
  virtual void insert(object_id id, uint64_t size_bytes, uint64_t key_hash) = 0;

  /// The object was read. Also for a parked one.
  virtual void touch(object_id id) = 0;

  /// The object is gone for another reason (deleted, replaced): forget it, also if parked.
  virtual void remove(object_id id) = 0;

  /// Removes and returns the object to evict. Candidates for which `is_held` is true are parked
  /// on the way.
  /// @returns nothing if no queued object may be evicted.
  virtual std::optional<object_id> victim(const held_predicate& is_held) = 0;

  /// Takes a queued object out of the queue at once, for a caller that knows that it will stay
  /// held (its first child became resident): `victim` need not walk over it later.
  virtual void park(object_id id) = 0;

  /// The last hold on `id` ended. Does nothing unless it is parked: one look at its record.
  virtual void release(object_id id, reentry where = reentry::recent) = 0;

  virtual bool is_parked(object_id id) const = 0;
  virtual uint64_t queued_count() const = 0;
  virtual uint64_t parked_count() const = 0;

  /// Another policy of this kind, empty, for other objects out of the same numbers: the two
  /// share the records, so that many of them cost no more than one. A number may be present in
  /// one of them at a time, and only that one may be told of it.
  virtual std::unique_ptr<eviction_policy> sibling() const = 0;

  /// As in `--eviction`.
  virtual std::string_view name() const = 0;
};

/// Creates the policy called `name`: "s3fifo" or "lru".
/// @returns the policy, or `errc::invalid_argument` whose text has the name and the known ones.
caf::expected<std::unique_ptr<eviction_policy>> make_eviction_policy(std::string_view name);

} // namespace kvasir
