// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// The names of pool segments in /dev/shm, and whose they are. Used by `shm_pool` alone.
/// Threading: any thread. Blocking: file system calls on tmpfs.
namespace kvasir::segment_names {

inline constexpr const char* folder = "/dev/shm";

/// The path of a name.
std::string path_of(const std::string& name);

/// What LMCache clients look for: `lmcache_l1_pool_kvasir_<uid>_` and 16 hexadecimal digits.
std::string default_name(uint64_t boot_id);

/// Under which the segment is created and locked before anyone can see its public name.
std::string anchor_name(uint64_t boot_id);

/// A random 64-bit number.
uint64_t new_boot_id();

/// Whether a name can be a file in /dev/shm.
bool usable(const std::string& name);

/// Whether anything, of whatever kind, has this name. Never follows a link.
bool taken(const std::string& name);

/// `errc::io_error` that says what has the name and which uid owns it.
caf::error taken_error(const std::string& name);

/// Unlinks all names of segments whose owner is dead: regular files of our uid, found by the
/// default or anchor prefix, whose lock can be taken; then every other name of the same files.
/// Never waits, never follows a link.
/// @returns the names removed.
std::vector<std::string> sweep();

} // namespace kvasir::segment_names
