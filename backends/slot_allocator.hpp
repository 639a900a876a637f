// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/chunked_array.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

namespace kvasir {

/// Divides the pool's address space into slots: a two-level segregated-fit allocator (TLSF)
/// over pages of 4096 bytes, whose books lie outside the memory it manages. It never looks at
/// the memory itself, so a client that scribbles over the segment cannot harm it.
///
///   beyond usable --extend--> free --allocate--> used --free--> free (merged with neighbours)
///
/// Sizes: a request is rounded up to its size class; 64 classes per doubling, so at most 1.6 %
/// (and one page) is lost inside a block. Each free block of a class serves every request of
/// that class, hence freeing a block always makes room for one more of the same size.
///
/// Cost: allocate and free are O(1) without any scan. 24 bytes of books per block, used or
/// free, in chunks that never move: no pause however many blocks there are.
///
/// Threading: not thread-safe; belongs to exactly one actor.
/// Blocking: no call waits.
/// Errors: none but an empty optional. A handle that is not allocated means that the caller's
/// own books are broken: the process is aborted rather than a slot given to two objects.
/// Source: Masmano, Ripoll, Crespo, Real: TLSF (ECRTS 2004).
class slot_allocator {
public:
  static constexpr uint64_t page_bytes = 4096;
  static constexpr uint32_t no_block = std::numeric_limits<uint32_t>::max();

  /// What a holder needs to use and to free a block.
  struct block {
    uint64_t offset_bytes = 0;  ///< From the start of the pool; a multiple of 4096.
    uint64_t size_bytes = 0;    ///< What was set aside: the request, rounded up to its class.
    uint32_t handle = no_block; ///< For `free`; reused after that.

    friend bool operator==(const block&, const block&) = default;
  };

  /// Manages `capacity_bytes` of address space, rounded down to whole pages and to 16 TiB.
  /// Nothing is usable before `extend`.
  explicit slot_allocator(uint64_t capacity_bytes);

  /// Makes the first `usable_bytes` (rounded down to whole pages, at most the capacity)
  /// available. The range only grows: a smaller value changes nothing.
  void extend(uint64_t usable_bytes);

  /// Sets at least `size_bytes` aside; a size of 0 takes one page, so that each block has an
  /// address of its own. Contents are unspecified.
  /// @returns the block, or nothing if no free run is long enough: free another block and
  /// retry.
  std::optional<block> allocate(uint64_t size_bytes);

  /// Gives a block back; it merges with free neighbours at once.
  /// @pre `handle` came from `allocate` and was not freed since.
  void free(uint32_t handle);

  /// The block behind `handle`. @pre as for `free`.
  block at(uint32_t handle) const;

  /// The nearest used block in front of or behind this one (at most one free run lies between);
  /// nothing at the end of the range. For an evictor that wants a long run: evicting neighbours
  /// of a victim yields one, evicting blocks all over the pool does not. @pre as for `free`.
  std::optional<uint32_t> used_before(uint32_t handle) const;
  std::optional<uint32_t> used_after(uint32_t handle) const;

  /// Bytes that `allocate` sets aside for a request: the size of its class; the largest number
  /// if there is none.
  static uint64_t rounded_bytes(uint64_t size_bytes);

  uint64_t capacity_bytes() const { return uint64_t{capacity_pages_} * page_bytes; }
  uint64_t usable_bytes() const { return uint64_t{usable_pages_} * page_bytes; }
  uint64_t used_bytes() const { return uint64_t{used_pages_} * page_bytes; }
  uint64_t used_count() const { return used_count_; }

  /// The largest size that `allocate` is certain to serve now; 0 if none. O(1). The longest
  /// free run may be up to 1.6 % longer.
  uint64_t largest_free_bytes() const;

  /// True while all books agree: blocks tile the usable range without gap or overlap, no two
  /// free blocks touch, lists and bitmaps hold exactly the free blocks. O(blocks); for tests.
  bool valid() const;

private:
  static constexpr uint32_t classes_per_doubling = 64;
  static constexpr uint32_t level_count = 27; // 64 exact sizes, then 26 doublings up to 2^32
  static constexpr uint32_t used_mark = no_block - 1;  // in prev_free: the block is allocated
  static constexpr uint32_t spare_mark = no_block - 2; // in prev_free: the record is unused

  struct record {
    uint32_t page = 0;
    uint32_t page_count = 0;
    uint32_t before = no_block; // physical neighbours
    uint32_t after = no_block;
    uint32_t prev_free = spare_mark; // list of the size class, or a mark
    uint32_t next_free = no_block;
  };

  struct size_class {
    uint32_t level = 0;
    uint32_t index = 0;
  };

  static uint64_t pages_of(uint64_t size_bytes);
  static uint64_t round_to_class(uint64_t page_count);
  static size_class class_of(uint32_t page_count);
  static uint32_t lower_bound(size_class c);
  std::optional<size_class> first_filled(size_class from) const;
  uint32_t checked(uint32_t handle) const;
  bool is_free(uint32_t handle) const { return records_[handle].prev_free != used_mark; }
  uint32_t new_record();
  void drop_record(uint32_t handle);
  void link_free(uint32_t handle);
  void unlink_free(uint32_t handle);

  uint32_t capacity_pages_;
  uint32_t usable_pages_ = 0;
  uint32_t used_pages_ = 0;
  uint32_t used_count_ = 0;
  uint32_t last_ = no_block; // the block at the end of the usable range
  chunked_array<record> records_;
  uint32_t record_count_ = 0;
  uint32_t spare_records_ = no_block;
  uint32_t filled_levels_ = 0;
  std::array<uint64_t, level_count> filled_classes_{};
  std::array<std::array<uint32_t, classes_per_doubling>, level_count> heads_;
};

} // namespace kvasir
