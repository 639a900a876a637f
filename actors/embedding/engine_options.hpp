// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/shm_pool.hpp"
#include "messages/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace kvasir {

/// What an embedded client serves, and with what.
struct engine_options {
  std::string model;       ///< 1 .. 1024 bytes; part of every chunk's name.
  uint32_t world_size = 1; ///< Ranks that together hold a chunk, 1 .. 255.
  uint32_t rank = 0;       ///< The one that this client serves.
  mp::kv_layout layout;    ///< Of a chunk of this rank; one token per slot.

  /// The Unix socket of this host's kvasird (its --engine-socket): the pool is the node's, shared with
  /// all that it serves. Empty: a pool of this client's own, to which the next three apply.
  std::string node{};

  uint64_t pool_bytes = 1ull << 30;
  /// Private memory has huge pages, and nothing of it is left in /dev/shm when the process is killed.
  shm_pool::sharing shm = shm_pool::sharing::off;
  std::string eviction = "s3fifo";
  bool verify_loads = true; ///< Compare what is copied out with its checksum.

  unsigned copy_threads = 2;
  /// A wake-up costs as much as this copy: up to so many bytes the calling thread copies itself.
  uint64_t max_inline_copy_bytes = 256 << 10;
  size_t max_pending = 1024; ///< Calls that wait for something; more are refused with `busy`.
};

/// @returns none, or `invalid_argument` or `too_large` with what is wrong.
caf::error check(const engine_options& options);

} // namespace kvasir
