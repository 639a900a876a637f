// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/key_digest.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// How the object index lies in shared memory: a header of one page, then sets of eight entries
/// of one cache line each, then for each set a 32-bit number of the objects that found no place
/// in it. Of this machine and this version only: nothing of it is ever stored.
///
/// Every word is atomic, so there is no race in the language's sense, whatever the other side
/// does. An entry is a seqlock: `version` is odd while the writer is at it and differs after
/// each change. Readers load all words with acquire, the writer stores all with release: who
/// sees a word of a change sees its odd version, too, when it looks at the version again.
namespace kvasir::index_format {

using word = std::atomic<uint64_t>;
static_assert(word::is_always_lock_free && sizeof(word) == sizeof(uint64_t));

inline constexpr uint64_t magic = 0x7865'646e'6972'766b; // "kvrindex"
inline constexpr uint64_t version = 1;

struct header {
  word magic;
  word version;
  word set_count;
  word epoch; ///< Entries of another epoch are not there: a clear hides them all at once.
};

inline constexpr size_t header_bytes = 4096;

struct alignas(64) entry {
  word version;
  word digest_low;
  word digest_high;
  word offset_bytes;
  word size_bytes;
  word generation;
  word checksum;
  word flags; ///< Bit 0: used, bit 1: sealed, bits 32-63: epoch.
};

static_assert(sizeof(entry) == 64);

inline constexpr uint64_t used_flag = 1;
inline constexpr uint64_t sealed_flag = 2;
inline constexpr unsigned epoch_shift = 32;

inline constexpr uint32_t ways = 8;
using set = std::array<entry, ways>;
using overflow_count = std::atomic<uint32_t>;
static_assert(overflow_count::is_always_lock_free);

/// Entries are numbered in 32 bits.
inline constexpr uint64_t max_sets = (uint64_t{1} << 32) / ways - 1;

constexpr uint64_t total_bytes(uint64_t set_count) {
  return header_bytes + set_count * (sizeof(set) + sizeof(overflow_count));
}

/// Where an object must be if it is anywhere.
constexpr uint64_t set_of(const index_digest& digest, uint64_t set_count) {
  return (digest.low >> 32) * set_count >> 32;
}

} // namespace kvasir::index_format
