// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/engine_messages.hpp"

#include <cstddef>
#include <span>
#include <vector>

/// The copies of the MP door: between slots and messages, with the checksum in the same pass.
///
/// Threading: any thread, for as long as the leases of the slots live.
namespace kvasir {

/// One chunk of an inline store.
struct chunk_copy_in {
  std::span<const std::byte> from;
  lease_id lease = 0;
  slot to;
};

/// Copies into the slots. @returns lease and checksum of each.
std::vector<finish_write> copy_in(std::byte* pool, const std::vector<chunk_copy_in>& chunks);

/// Copies a chunk out of its slot. @returns false if it has a checksum and the bytes differ.
bool copy_out(const std::byte* pool, const read_lease& chunk, std::byte* to, bool verify);

/// @returns lease and checksum of each.
std::vector<finish_write> hash_chunks(const std::byte* pool,
                                      const std::vector<read_lease>& chunks);

} // namespace kvasir
