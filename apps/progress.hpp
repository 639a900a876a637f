// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace kvasir::client {

/// Shows on standard error, if that is a terminal, how far a long transfer is.
/// Threading: one thread.
class progress {
public:
  progress(const char* what, uint64_t size_bytes)
    : what_(what),
      size_(size_bytes),
      shown_(size_bytes >= worth_showing_bytes && isatty(STDERR_FILENO) == 1) {}

  void add(uint64_t bytes) {
    done_ += bytes;
    auto now = std::chrono::steady_clock::now();
    if (!shown_ || now < next_)
      return;
    next_ = now + std::chrono::milliseconds{200};
    std::fprintf(stderr, "\r%s %llu of %llu MiB", what_, mib(done_), mib(size_));
  }

  /// Wipes the line.
  void end() const {
    if (shown_)
      std::fprintf(stderr, "\r%50s\r", "");
  }

private:
  static constexpr uint64_t worth_showing_bytes = 16 << 20;

  static unsigned long long mib(uint64_t bytes) { return bytes >> 20; }

  const char* what_;
  uint64_t size_;
  uint64_t done_ = 0;
  bool shown_;
  std::chrono::steady_clock::time_point next_;
};

} // namespace kvasir::client
