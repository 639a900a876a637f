// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace kvasir {

/// Remembers the hashes of objects that were evicted lately, as advice: it may forget early
/// (a full bucket drops its oldest) and errs about one time in 2^29. Buckets of eight fill one
/// cache line; an entry is 8 bytes: 32 bits of the hash and the time it was added.
///
/// The window (how many additions an entry outlives) follows the number of resident objects,
/// up to 2^20. When the table must grow, a larger one takes over and the old one is read until
/// its entries have expired: nothing is copied, no call pauses.
///
/// Threading: not thread-safe. Memory: at most 8 MiB, plus the predecessor's half for a while.
class ghost_table {
public:
  static constexpr uint32_t max_window = 1u << 20;

  /// Adds a hash; `resident_count` sets the window.
  void add(uint64_t hash, uint64_t resident_count);

  /// Whether the hash was added within the window; forgets it.
  bool take(uint64_t hash);

  uint64_t memory_bytes() const;

private:
  static constexpr uint32_t bucket_size = 8;

  struct entry {
    uint32_t tag = 0; // 0 = empty
    uint32_t time = 0;
  };

  struct free_deleter {
    void operator()(entry* entries) const { std::free(entries); }
  };

  struct table {
    // From calloc: large ones are zero pages that cost nothing before they are written.
    std::unique_ptr<entry[], free_deleter> entries;
    uint32_t entry_count = 0; // a power of two, or 0 = none
  };

  static entry* bucket_of(table& t, uint64_t hash);
  bool expired(const entry& e) const { return time_ - e.time > window_; }
  bool take(table& t, uint64_t hash);
  void grow_to(uint32_t entry_count);

  table current_;
  table previous_;
  uint32_t previous_until_ = 0;
  uint32_t window_ = 0;
  uint32_t time_ = 0;
};

} // namespace kvasir
