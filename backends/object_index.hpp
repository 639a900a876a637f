// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/object_index_format.hpp"
#include "backends/sealed_memory.hpp"
#include "messages/key_digest.hpp"
#include "messages/object.hpp"

#include <caf/expected.hpp>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

namespace kvasir {

/// Which objects can be read and where they rest, for other processes of this host: they look it
/// up without asking (`object_index_reader`). Written here, read-only for them.
///
///   absent --put--> listed --erase--> absent       listed --freeze--> frozen --thaw--> listed
///                                                   frozen --erase--> absent
///
/// An object lies in one of the eight entries of its set; if all are taken it is refused, and
/// its set says so: who does not find an object in such a set has to ask. Every other miss
/// counts.
///
/// Threading: not thread-safe but for its readers; belongs to exactly one actor.
/// Blocking: no call waits. Cost: O(1) per call.
/// Memory: 258 bytes per object of `max_objects` (four entries of 64 bytes, so that one set in
/// some thousands overflows when it is full), each page taken when its first entry is written.
class object_index {
public:
  static constexpr uint32_t no_entry = std::numeric_limits<uint32_t>::max();

  /// @returns `errc::invalid_argument` if `max_objects` is 0 or beyond 2^30 - 2, `errc::io_error`
  /// if the system refuses.
  static caf::expected<std::unique_ptr<object_index>> create(uint64_t max_objects);

  /// For readers; lives as long as this.
  int read_only_fd() const noexcept { return memory_.fd(); }

  /// Lists an object. @pre no object of this digest is listed.
  /// @returns its entry, or nothing if its set is full: it is counted there until `forget`.
  std::optional<uint32_t> put(const index_digest& digest, const slot& where, uint64_t checksum,
                              bool sealed);

  /// Ends the count of an object that `put` refused.
  void forget(const index_digest& digest);

  /// Sets the checksum of an object that was listed without.
  void seal(uint32_t entry, uint64_t checksum);

  /// Readers wait, some microseconds at most, instead of finding the object: whatever they
  /// published before this call is seen by the caller's next look at the hold board, or their
  /// `still` is false.
  void freeze(uint32_t entry);

  /// As if nothing had happened.
  void thaw(uint32_t entry);

  /// The object is found no more. Orders as `freeze` does.
  void erase(uint32_t entry);

  /// Hides all objects at once; each is still listed until it is erased.
  void clear();

  /// Shows an object that `clear` hid.
  void keep(uint32_t entry);

  /// The slot of an entry; a generation of 0 if none is listed there, or there is no such entry.
  slot where(uint32_t entry) const noexcept;

  uint64_t objects() const noexcept { return objects_; }                 ///< Listed.
  uint64_t overflowed_sets() const noexcept { return overflowed_sets_; } ///< Now.
  uint64_t refused() const noexcept { return refused_; }                 ///< Since start.
  uint64_t entry_count() const noexcept { return set_count_ * index_format::ways; }

private:
  object_index(sealed_memory memory, uint64_t set_count);

  index_format::entry& entry_at(uint32_t entry) const noexcept;
  index_format::header& header() const noexcept;
  index_format::overflow_count& overflow_of(const index_digest& digest) const noexcept;

  /// Writes between two versions.
  template <class Function>
  void change(index_format::entry& entry, Function write);

  uint64_t flags_of(uint64_t more) const noexcept;

  sealed_memory memory_;
  uint64_t set_count_;
  uint32_t epoch_ = 0;
  uint64_t objects_ = 0;
  uint64_t overflowed_sets_ = 0;
  uint64_t refused_ = 0;
};

} // namespace kvasir
