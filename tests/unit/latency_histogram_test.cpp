#include "bench/latency_histogram.hpp"

#include <doctest/doctest.h>

#include <memory>

using kvasir::bench::latency_histogram;
using namespace std::chrono_literals;

TEST_CASE("an empty latency histogram reports zero") {
  auto histogram = std::make_unique<latency_histogram>();
  CHECK(histogram->count() == 0);
  CHECK(histogram->quantile(0.5) == 0ns);
  CHECK(histogram->max() == 0ns);
}

TEST_CASE("a quantile is off by less than one per cent from nanoseconds to hours") {
  for (std::int64_t ns = 1; ns < 4'000'000'000'000; ns = ns * 13 / 10 + 1) {
    auto histogram = std::make_unique<latency_histogram>();
    histogram->record(std::chrono::nanoseconds{ns});
    histogram->record(std::chrono::nanoseconds{2 * ns}); // so that the maximum does not clip
    CAPTURE(ns);
    CHECK(static_cast<double>(histogram->quantile(0.5).count())
          == doctest::Approx(static_cast<double>(ns)).epsilon(0.01));
  }
}

TEST_CASE("quantiles of merged histograms are those of all their latencies") {
  auto odd = std::make_unique<latency_histogram>();
  auto even = std::make_unique<latency_histogram>();
  for (int i = 1; i <= 1000; ++i)
    (i % 2 == 1 ? odd : even)->record(std::chrono::microseconds{i});
  odd->merge(*even);
  CHECK(odd->count() == 1000);
  CHECK(static_cast<double>(odd->quantile(0.5).count())
        == doctest::Approx(500e3).epsilon(0.01));
  CHECK(static_cast<double>(odd->quantile(0.99).count())
        == doctest::Approx(990e3).epsilon(0.01));
  CHECK(odd->max() == 1ms);
}

TEST_CASE("the largest and a negative latency do not leave the buckets") {
  auto histogram = std::make_unique<latency_histogram>();
  histogram->record(std::chrono::nanoseconds::max());
  histogram->record(-1ns);
  CHECK(histogram->count() == 2);
  CHECK(histogram->quantile(0.1) == 0ns);
  CHECK(histogram->max() == std::chrono::nanoseconds::max());
}
