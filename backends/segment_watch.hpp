// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace kvasir {

/// Tells whether somebody opened the pool's segment after a certain moment: did the client that
/// was told the name really attach? Sees processes of any pid namespace, as long as they use the
/// same file. `stat` and new names of the file are no openings, so neither `pool_keeper`'s look
/// at the name nor `shm_pool::republish` counts; the start of another kvasird of the same user
/// does (it looks for dead owners' segments).
///
/// It follows the file, not its name: a name that was unlinked and published again leads to the
/// same file, and openings of it go on being seen.
///
/// There is no count of those who have it open now: the kernel merges equal events that follow
/// each other, so that a difference of counts would drift. `shm_pool::open_elsewhere` knows.
///
/// Threading: belongs to one thread. Blocking: never.
/// Source: inotify(7).
class segment_watch {
public:
  /// Watches the file that has the name `name` in /dev/shm now.
  /// @returns the watch, or `errc::io_error` with one line if there is no such file or the
  /// user's inotify instances are used up.
  static caf::expected<std::unique_ptr<segment_watch>> open(const std::string& name);
  ~segment_watch();
  segment_watch(const segment_watch&) = delete;
  segment_watch& operator=(const segment_watch&) = delete;

  /// Readable when `update` has something to read; for epoll, level- or edge-triggered.
  int fd() const noexcept { return fd_; }

  /// Reads all that happened up to now. An open(2) that returned before this call is seen.
  void update();

  /// Grows from one `update` to the next if and only if the file was opened in between (or the
  /// kernel lost track, which counts as an opening). Not the number of openings: see above.
  uint64_t opens() const noexcept { return opens_; }

private:
  explicit segment_watch(int fd) noexcept : fd_(fd) {}

  int fd_;
  uint64_t opens_ = 0;
};

} // namespace kvasir
