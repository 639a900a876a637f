// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/engine_messages.hpp"
#include "messages/mp_reply.hpp"
#include "messages/tensor_pickle.hpp"

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

/// Fills the answer to an inline retrieve: head, the chunks as a list of tensors, tail.
/// @param to room for all of it
/// @returns the chunks whose bytes differ from their checksum
std::vector<lease_id> fill_retrieve_frame(const std::byte* pool,
                                          const std::vector<read_lease>& chunks,
                                          const mp::tensor_list_writer& tensors,
                                          const mp::retrieve_frame& frame, std::byte* to,
                                          bool verify);

/// @returns lease and checksum of each.
std::vector<finish_write> hash_chunks(const std::byte* pool,
                                      const std::vector<read_lease>& chunks);

} // namespace kvasir
