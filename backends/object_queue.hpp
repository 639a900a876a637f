// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/chunked_array.hpp"

#include <cstdint>
#include <limits>

namespace kvasir {

/// Ends a chain of `newer` / `older` numbers.
inline constexpr uint32_t object_queue_end = std::numeric_limits<uint32_t>::max();

/// A doubly linked queue of object numbers whose links lie in the caller's records (`newer`,
/// `older`, `size_bytes`). An object is in at most one queue; the caller keeps track of which.
///
/// Threading: not thread-safe. Cost: every operation O(1), no allocation.
template <class Entry>
class object_queue {
public:
  /// `entries` must outlive the queue and must not move.
  explicit object_queue(chunked_array<Entry>& entries) : entries_(&entries) {}

  object_queue(const object_queue&) = delete;
  object_queue& operator=(const object_queue&) = delete;

  void push_newest(uint32_t id) {
    auto& e = (*entries_)[id];
    e.newer = object_queue_end;
    e.older = newest_;
    (newest_ == object_queue_end ? oldest_ : (*entries_)[newest_].newer) = id;
    newest_ = id;
    ++count_;
    size_bytes_ += e.size_bytes;
  }

  void push_oldest(uint32_t id) {
    auto& e = (*entries_)[id];
    e.older = object_queue_end;
    e.newer = oldest_;
    (oldest_ == object_queue_end ? newest_ : (*entries_)[oldest_].older) = id;
    oldest_ = id;
    ++count_;
    size_bytes_ += e.size_bytes;
  }

  /// @pre `id` is in this queue.
  void unlink(uint32_t id) {
    auto& e = (*entries_)[id];
    (e.newer == object_queue_end ? newest_ : (*entries_)[e.newer].older) = e.older;
    (e.older == object_queue_end ? oldest_ : (*entries_)[e.older].newer) = e.newer;
    --count_;
    size_bytes_ -= e.size_bytes;
  }

  bool empty() const { return count_ == 0; }
  /// `object_queue_end` if empty.
  uint32_t oldest() const { return oldest_; }
  uint64_t count() const { return count_; }
  uint64_t size_bytes() const { return size_bytes_; }

private:
  chunked_array<Entry>* entries_;
  uint32_t newest_ = object_queue_end;
  uint32_t oldest_ = object_queue_end;
  uint64_t count_ = 0;
  uint64_t size_bytes_ = 0;
};

} // namespace kvasir
