#include "actors/mp_copies.hpp"

#include "backends/checksum.hpp"

#include <algorithm>
#include <cstring>

namespace kvasir {

namespace {

/// @returns false if the chunk has a checksum and the bytes differ.
bool copy_out(const std::byte* pool, const read_lease& chunk, std::byte* to, bool verify) {
  std::span from{pool + chunk.where.offset_bytes, chunk.where.size_bytes};
  if (!verify || !chunk.sealed) {
    std::memcpy(to, from.data(), from.size());
    return true;
  }
  return copy_and_checksum(to, from) == chunk.checksum;
}

} // namespace

std::vector<finish_write> copy_in(std::byte* pool, const std::vector<chunk_copy_in>& chunks) {
  std::vector<finish_write> result;
  for (auto& chunk : chunks)
    result.push_back({chunk.lease, copy_and_checksum(pool + chunk.to.offset_bytes, chunk.from)});
  return result;
}

std::vector<lease_id> fill_retrieve_frame(const std::byte* pool,
                                          const std::vector<read_lease>& chunks,
                                          const mp::tensor_list_writer& tensors,
                                          const mp::retrieve_frame& frame, std::byte* to,
                                          bool verify) {
  std::vector<lease_id> corrupt;
  auto put = [&](std::span<const std::byte> piece) {
    to = std::copy(piece.begin(), piece.end(), to);
  };
  put(std::as_bytes(std::span{frame.head}));
  for (size_t i = 0; i < chunks.size(); ++i) {
    auto& chunk = chunks[i];
    put(tensors.piece(i));
    if (!copy_out(pool, chunk, to, verify))
      corrupt.push_back(chunk.id);
    to += chunk.where.size_bytes;
  }
  put(tensors.piece(chunks.size()));
  put(std::as_bytes(std::span{frame.tail}));
  return corrupt;
}

std::vector<finish_write> hash_chunks(const std::byte* pool,
                                      const std::vector<read_lease>& chunks) {
  std::vector<finish_write> result;
  for (auto& chunk : chunks)
    result.push_back(
      {chunk.id, checksum({pool + chunk.where.offset_bytes, chunk.where.size_bytes})});
  return result;
}

} // namespace kvasir
