#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvasir::bench {

/// Counts latencies in log-linear buckets: 64 steps per doubling, so that a quantile is off by
/// less than 1 %. The size is fixed: recording never allocates in the measured loop.
///
/// Threading: not thread-safe; one per connection, merged after the threads ended.
class latency_histogram {
public:
  void record(std::chrono::nanoseconds latency) {
    auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(latency.count(), 0));
    ++counts_[bucket_of(ns)];
    ++count_;
    max_ns_ = std::max(max_ns_, ns);
  }

  void merge(const latency_histogram& other) {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      counts_[i] += other.counts_[i];
    count_ += other.count_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
  }

  std::uint64_t count() const { return count_; }

  std::chrono::nanoseconds max() const { return to_duration(max_ns_); }

  /// The smallest recorded latency that is not exceeded by the share `q` (0..1) of all; 0 when
  /// nothing was recorded.
  std::chrono::nanoseconds quantile(double q) const {
    auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (counts_[i] > 0 && seen >= rank)
        return to_duration(std::min(middle_of(i), max_ns_));
    }
    return {};
  }

private:
  static constexpr unsigned step_bits = 6;
  // The top value has shift 57 (64 bits less the 7 that select a bucket).
  static constexpr std::size_t bucket_count = (57U << step_bits) + (2U << step_bits);

  static unsigned shift_of(std::uint64_t ns) {
    auto width = static_cast<unsigned>(std::bit_width(ns));
    return width > step_bits + 1 ? width - step_bits - 1 : 0;
  }

  static std::size_t bucket_of(std::uint64_t ns) {
    auto shift = shift_of(ns);
    return (std::size_t{shift} << step_bits) + static_cast<std::size_t>(ns >> shift);
  }

  /// Inverse of `bucket_of`: the middle of the latencies that the bucket counts.
  static std::uint64_t middle_of(std::size_t bucket) {
    if (bucket < (2U << step_bits))
      return bucket;
    auto shift = static_cast<unsigned>((bucket >> step_bits) - 1);
    auto lead = static_cast<std::uint64_t>(bucket) - (std::uint64_t{shift} << step_bits);
    return (lead << shift) + (std::uint64_t{1} << shift) / 2;
  }

  static std::chrono::nanoseconds to_duration(std::uint64_t ns) {
    return std::chrono::nanoseconds{static_cast<std::int64_t>(ns)};
  }

  std::array<std::uint64_t, bucket_count> counts_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ns_ = 0;
};

} // namespace kvasir::bench
