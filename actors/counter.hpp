// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kvasir {

/// Counts what one thread decides and any thread may read. Adding needs no locked instruction,
/// because there is one writer.
class counter {
public:
  void add(uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t read() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<uint64_t> value_{0};
};

/// One counter per enumerator of `Enum`, which ends with `count_`.
template <class Enum>
class counter_set {
public:
  static constexpr auto size = static_cast<size_t>(Enum::count_);
  using values = std::array<uint64_t, size>;

  void add(Enum what, uint64_t n = 1) noexcept { counters_[static_cast<size_t>(what)].add(n); }
  uint64_t read(Enum what) const noexcept {
    return counters_[static_cast<size_t>(what)].read();
  }

  /// Adds all counters to `sum`.
  void add_to(values& sum) const noexcept {
    for (size_t i = 0; i < size; ++i)
      sum[i] += counters_[i].read();
  }

private:
  std::array<counter, size> counters_;
};

} // namespace kvasir
