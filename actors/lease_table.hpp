// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/memory_tier.hpp"
#include "messages/storage_messages.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// Who holds what: one record per reservation and per read hold.
///
/// A lease is consumed by taking it, so a second release finds nothing and harms nobody; and
/// all leases of an owner can be taken in one step, so a leak needs an owner that never ends.
///
/// Threading: not thread-safe; belongs to the storage manager. Cost: O(1) per call, but for
/// `read_objects`.
class lease_table {
public:
  enum class kind : uint8_t {
    write,   ///< A reservation of `reserve_write`.
    read,    ///< A hold.
    hashing, ///< A hold of who hashes what was just published: no reader.
    chunk,   ///< A reservation of `reserve_chunks`.
    expired, ///< Such a one that can be published no more, but keeps its memory.
  };

  struct lease {
    owner_id owner = 0;
    object_handle object = 0;
    uint64_t size_bytes = 0;
    kind what = kind::write;
    const std::string* staged_key = nullptr; ///< Of a `chunk`: in the manager's index.
  };

  lease_id add(const lease& what);

  /// Consumes a lease. @returns nothing if it is not there or of the other kind.
  std::optional<lease> take(lease_id id, kind what);

  /// Consumes a lease of whatever kind. @returns nothing if it is not there.
  std::optional<lease> take(lease_id id);

  /// Turns a `chunk` into an `expired` one.
  /// @returns the lease as it was, or nothing if it is not there or of another kind.
  std::optional<lease> expire(lease_id id);

  /// Consumes any lease of `owner`; call until it returns nothing.
  std::optional<lease> take_any(owner_id owner);

  /// What is held by `read` leases, once for each. O(leases ever open at a time).
  std::vector<object_handle> read_objects() const;

  /// Reservations of all kinds.
  uint64_t writes() const noexcept { return writes_; }
  uint64_t expired() const noexcept { return expired_; }
  uint64_t reads() const noexcept { return reads_; }

private:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();

  struct record {
    lease what;
    uint32_t generation = 0;
    uint32_t next = none; ///< Among the owner's leases, or the spare records.
    uint32_t prev = none;
    bool taken = true;
  };

  /// @returns its record's number, or `none`.
  uint32_t find(lease_id id) const noexcept;
  lease remove(uint32_t index);

  std::vector<record> records_;
  uint32_t spare_ = none;
  std::unordered_map<owner_id, uint32_t> first_of_; ///< Stays while the owner may come again.
  uint64_t writes_ = 0;
  uint64_t expired_ = 0;
  uint64_t reads_ = 0;
};

/// A number for an owner of leases that no other owner in this process has.
owner_id next_owner_id() noexcept;

} // namespace kvasir
