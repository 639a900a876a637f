// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace kvasir {

/// Counts how often a shared-memory segment was opened since the watch began, by any process
/// that can reach it, also in other containers: so one learns whether a client that was told the
/// name could attach.
///
/// Threading: one thread at a time. Blocking: no call waits. Source: inotify(7), which reports
/// events of the file itself whatever name it is opened by.
class segment_watch {
public:
  /// @param segment its name below /dev/shm
  /// @returns null if the system has no watch left: nothing will be known then.
  static std::unique_ptr<segment_watch> open(const std::string& segment);
  ~segment_watch();
  segment_watch(const segment_watch&) = delete;
  segment_watch& operator=(const segment_watch&) = delete;

  /// Takes notice of what happened since the last call.
  void update();

  uint64_t opens() const noexcept { return opens_; }

private:
  explicit segment_watch(int fd) noexcept : fd_(fd) {}

  int fd_;
  uint64_t opens_ = 0;
};

} // namespace kvasir
