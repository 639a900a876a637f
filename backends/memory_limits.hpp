// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstdint>
#include <string>

namespace kvasir {

/// How much more memory this process may take before the kernel swaps or kills.
struct memory_room {
  uint64_t available_bytes = 0;
  std::string limited_by; ///< What sets the bound, e.g. "the memory cgroup /sys/fs/cgroup/a".
};

/// The smallest of: what the machine has available (`MemAvailable`), and limit minus usage of
/// each memory cgroup (version 1 or 2) from the process's own up to the root. Inactive file
/// cache counts as free, as the kernel drops it first. What cannot be read sets no bound.
///
/// `root` replaces "/" before every path read; for tests. Any thread; reads a dozen small
/// files.
memory_room available_memory(const std::string& root = "");

} // namespace kvasir
