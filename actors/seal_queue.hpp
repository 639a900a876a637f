// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/storage_messages.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

namespace kvasir {

/// Chunks that engines wrote into shared memory and that have no checksum yet.
///
/// To hash a chunk is to read it whole once more. While engines copy as fast as memory lets them,
/// that takes a third to a half of their rate (docs/decisions/0010), and nobody waits for it: so
/// it is done in calm ticks. What waits is held, out of eviction's reach, so it has a limit;
/// beyond it the oldest chunks stay without a checksum.
///
/// Threading: one thread's. Takes no clock: its owner calls `tick`.
class seal_queue {
public:
  static constexpr std::chrono::milliseconds tick_every{100};

  /// Engines that move less in a tick do not notice that somebody else reads memory.
  static constexpr uint64_t calm_bytes = 64 << 20;

  /// What one thread hashes in well under a tick.
  static constexpr uint64_t batch_bytes = 256 << 20;

  explicit seal_queue(uint64_t max_held_bytes) : max_held_bytes_(max_held_bytes) {}

  /// @returns what has to be let go without a checksum.
  std::vector<read_lease> add(std::vector<read_lease> unsealed);

  /// Engines copied so much, in or out.
  void moved(uint64_t bytes) { moved_bytes_ += bytes; }

  /// Ends a tick. @returns what to hash now; `hashed` says when that is done.
  std::vector<read_lease> tick();
  void hashed() { hashing_ = false; }

  bool empty() const { return waiting_.empty(); }

private:
  const uint64_t max_held_bytes_;
  std::deque<read_lease> waiting_;
  uint64_t waiting_bytes_ = 0;
  uint64_t moved_bytes_ = 0;
  bool hashing_ = false;
};

} // namespace kvasir
