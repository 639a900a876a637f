// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/hold_page_format.hpp"
#include "backends/sealed_memory.hpp"
#include "messages/object.hpp"

#include <caf/expected.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace kvasir {

/// The hold pages of the engines that joined, one each: which slots do they read now, what did they
/// touch? An engine can write anything into its page; that at most holds slots, or counts as
/// uses of objects, until it is removed.
///
/// Threading: any thread at any time (a lock that is held for some hundred nanoseconds).
/// Blocking: no call waits otherwise. Memory: 65 KiB per engine.
class hold_board {
public:
  static constexpr size_t max_engines = 256;

  hold_board() = default;
  hold_board(const hold_board&) = delete;
  hold_board& operator=(const hold_board&) = delete;

  /// A page for one more engine. @returns its number, never used again, or
  ///   - `errc::busy` if there are `max_engines` already,
  ///   - `errc::io_error` if the system refuses.
  caf::expected<uint64_t> add();

  /// To be sent to the engine, to nobody else; valid until `remove`. -1 if there is no such one.
  int fd(uint64_t id) const;

  /// All its holds end. @pre the engine ended, or reads no slots any more.
  void remove(uint64_t id);

  size_t engines() const;

  /// Whether an engine reads this slot. Whoever hid the slot before (`object_index::freeze` or
  /// `erase`) and is told no may give its memory away. Cost: a cache line per engine.
  bool is_held(const slot& where) const;

  /// Calls `on_touch(entry)` for what engines touched since, for up to `limit` entries, with the
  /// lock held. An entry can be any number. Engines take turns at being the first.
  template <class Function>
  void drain_touches(size_t limit, Function on_touch) {
    std::lock_guard guard{mutex_};
    for (size_t n = engines_.size(), i = 0; i < n && limit > 0; ++i)
      limit -= drain(engines_[(first_drained_ + i) % n], limit, on_touch);
    ++first_drained_;
  }

  uint64_t touches() const noexcept { return touches_; } ///< Drained since start.
  /// Times that an engine touched more than its page has room for before it was drained.
  uint64_t touches_overrun() const noexcept { return touches_overrun_; }

private:
  struct engine {
    uint64_t id;
    sealed_memory memory;
    uint64_t drained; ///< Of the page's `touched`.

    hold_page_format::page& page() const {
      return *reinterpret_cast<hold_page_format::page*>(memory.data());
    }
  };

  static bool holds(const hold_page_format::page& page, uint64_t record);

  template <class Function>
  size_t drain(engine& from, size_t limit, Function& on_touch) {
    using namespace hold_page_format;
    auto& page = from.page();
    auto behind = page.touched.load(std::memory_order_relaxed) - from.drained;
    if (behind > ring_size) { // Or it wrote nonsense.
      from.drained += behind - ring_size;
      behind = ring_size;
      ++touches_overrun_;
    }
    auto count = std::min<uint64_t>(behind, limit);
    for (uint64_t i = 0; i < count; ++i) {
      auto entry = page.ring[from.drained++ % ring_size].load(std::memory_order_relaxed);
      if (entry - 1 < UINT32_MAX)
        on_touch(static_cast<uint32_t>(entry - 1));
    }
    touches_ += count;
    return count;
  }

  mutable std::mutex mutex_;
  std::vector<engine> engines_;
  uint64_t last_id_ = 0;
  size_t first_drained_ = 0;
  std::atomic<uint64_t> touches_{0}; ///< To be read without the lock.
  std::atomic<uint64_t> touches_overrun_{0};
};

} // namespace kvasir
