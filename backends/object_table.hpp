// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/chunked_array.hpp"
#include "messages/object.hpp"

#include <cstdint>
#include <limits>
#include <string>

namespace kvasir {

/// One object's record. Memory per object beside its bytes: this, the key's characters, a
/// bucket, and the records of allocator and eviction policy (docs/performance.md).
struct object_record {
  enum class state : uint8_t { absent, reserved, complete, evicting };

  static constexpr uint32_t unlisted = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t refused = unlisted - 1; ///< Its set was full.

  std::string key;
  object_layout layout;
  uint64_t key_hash = 0;
  uint64_t checksum = 0; ///< While it is reserved: the hash of its parent's key, 0 if none.
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0; ///< Payload.
  uint32_t block = 0;      ///< The allocator's handle.
  uint32_t generation = 0; ///< Grows each time the record is reused.
  uint32_t next = 0;       ///< In its bucket, or in the list of spare records.
  uint32_t holds = 0;
  uint32_t epoch = 0;             ///< The tier's epoch when it was published.
  uint32_t children = 0;          ///< Complete objects that have this one as their parent.
  uint32_t parent = 0;            ///< Its record; meant only with that record's generation.
  uint32_t parent_generation = 0; ///< 0: no parent.
  uint32_t entry = unlisted;      ///< In the object index; or one of the two below.
  uint16_t tenant = 0;            ///< In the tier's tenant table.
  state now = state::absent;
  bool sealed = false; ///< The checksum is known.
};

/// The records of a tier, and the index that leads from a key to its complete object.
///
/// Records are numbered densely and never move. The index is a linear-hashing table: it grows
/// by one bucket per insertion, so that no request ever pays for rehashing the whole.
///
/// Threading: not thread-safe. Cost: O(1).
class object_table {
public:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();

  object_table();

  object_record& operator[](uint32_t index) { return records_[index]; }
  const object_record& operator[](uint32_t index) const { return records_[index]; }

  /// Records ever used: valid indices are below this.
  uint32_t size() const noexcept { return size_; }

  /// Takes an unused record: state absent, generation new.
  uint32_t take();

  /// Gives a record back. @pre it is not in the index.
  void give_back(uint32_t index);

  /// @returns the index entry for `key`, or `none`.
  uint32_t find(const std::string& key, uint64_t key_hash) const;

  /// @returns an index entry whose key has this hash, or `none`: good enough for advice.
  uint32_t find(uint64_t key_hash) const;

  /// Adds a record by its `key` and `key_hash`. @pre no entry has that key.
  void insert(uint32_t index);

  /// Takes a record out of the index. @pre it is in there.
  void erase(uint32_t index);

private:
  uint32_t bucket_of(uint64_t key_hash) const noexcept;
  void split_one();

  static constexpr uint32_t initial_buckets = 1024;

  chunked_array<object_record> records_;
  uint32_t size_ = 0;
  uint32_t spare_ = none;
  chunked_array<uint32_t> buckets_;
  uint32_t bucket_count_ = initial_buckets;
  uint32_t level_size_
    = initial_buckets; ///< Buckets below `bucket_count_ - level_size_` are split.
  uint32_t indexed_ = 0;
};

} // namespace kvasir
