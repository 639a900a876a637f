// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/object.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// How a hold page lies in shared memory: what one engine reads, and what it touched. The engine
/// writes, the daemon reads and believes nothing. Of this machine and version only.
namespace kvasir::hold_page_format {

using word = std::atomic<uint64_t>;
static_assert(word::is_always_lock_free && sizeof(word) == sizeof(uint64_t));

inline constexpr uint64_t magic = 0x6567'6170'6472'766b; // "kvrdpage"
inline constexpr uint64_t version = 1;

/// A slot's record lies in its group, one cache line, so that the daemon looks at one line to
/// learn whether it is held; if that is full, in the spill, of which the daemon looks at what was
/// ever used.
inline constexpr uint32_t group_records = 8;
inline constexpr uint32_t group_count = 448;
inline constexpr uint32_t spill_records = 512;
inline constexpr uint32_t spill_begin = group_count * group_records;
inline constexpr uint32_t record_count = spill_begin + spill_records;

inline constexpr uint32_t ring_size = 4096;

struct page {
  word magic;
  word version;
  alignas(64) word spill_used; ///< Records of the spill that were ever used; grows only.
  alignas(64) word touched;    ///< Entries ever written into `ring`.
  alignas(64) std::array<word, record_count> records; ///< 0: free, else `packed`.
  alignas(64) std::array<word, ring_size> ring; ///< 0: none, else a number of an entry + 1.
};

static_assert(record_count == 4096);

/// Never 0, for no object has the number 2^32 - 1. A generation's low half is the number of the
/// object's record, so that two generations may look alike: a hold of one then also
/// keeps the other, which does no harm.
constexpr uint64_t packed(const slot& where) {
  return ((where.offset_bytes / 4096) << 32 | (where.generation & 0xffff'ffff)) + 1;
}

constexpr uint32_t group_of(uint64_t record) {
  auto mixed = (record * 0x9e37'79b9'7f4a'7c15) >> 32;
  return static_cast<uint32_t>(mixed * group_count >> 32);
}

} // namespace kvasir::hold_page_format
