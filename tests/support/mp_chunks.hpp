// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/tensor_pickle.hpp"
#include "support/fault_client.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Prompts and their chunks: all their tokens and bytes follow from a number.
namespace kvasir::test {

/// What kvasird is started with: --chunk-size.
inline constexpr uint32_t chunk_tokens = 16;

/// Chunks `[first, last)` of one rank of a prompt whose tokens and values follow from a number.
struct chunk_range {
  uint64_t prompt = 1;
  uint32_t first = 0;
  uint32_t last = 1;
  std::string request = "r";
  std::string salt{};
  std::string model = "m";
  uint32_t world_size = 1;
  uint32_t rank = 0;
  uint32_t readers = 1;
  size_t extra_tokens = 0; ///< Behind the last chunk.

  uint32_t count() const { return last - first; }

  std::vector<uint32_t> tokens() const {
    std::vector<uint32_t> result(size_t{last} * chunk_tokens + extra_tokens);
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = static_cast<uint32_t>(value_word(prompt, i) & 0x1ffff);
    return result;
  }

  uint64_t value_seed(uint32_t chunk) const {
    return value_word(prompt, uint64_t{chunk} << 8 | rank);
  }
};

/// What an instance registers. With the defaults a chunk has 16 KiB.
struct mp_layout {
  uint32_t layers = 2;
  uint32_t hidden = 128;
  std::string dtype = "float16";
  bool single_plane = false;
  uint32_t slots = chunk_tokens;

  tensor_dtype type() const { return *tensor_dtype_from_name(dtype); }

  std::vector<uint64_t> dims() const {
    if (single_plane)
      return {layers, slots, hidden};
    return {2, layers, slots, hidden};
  }

  uint64_t chunk_bytes() const {
    return *tensor_shape{dims()}.element_count() * item_size_bytes(type());
  }
};

/// Whole mebibytes per chunk.
inline mp_layout large_layout(uint32_t mebibytes = 1) {
  mp_layout result;
  result.layers = 4 * mebibytes;
  result.hidden = 4096;
  return result;
}

inline bytes chunk_value(const chunk_range& range, uint32_t chunk, const mp_layout& layout) {
  return value_of(range.value_seed(chunk), layout.chunk_bytes());
}

/// The chunks of a range, in order.
inline std::vector<bytes> chunk_values(const chunk_range& range, const mp_layout& layout) {
  std::vector<bytes> result;
  for (auto i = range.first; i < range.last; ++i)
    result.push_back(chunk_value(range, i, layout));
  return result;
}

inline std::string pickled(const std::vector<bytes>& chunks, tensor_dtype type,
                           const std::vector<uint64_t>& dims) {
  auto writer = mp::tensor_list_writer::make(type, tensor_shape{dims}, chunks.size());
  std::string result;
  auto put = [&](std::span<const std::byte> piece) {
    result.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  for (size_t i = 0; i < chunks.size(); ++i) {
    put(writer->piece(i));
    put(chunks[i]);
  }
  put(writer->piece(chunks.size()));
  return result;
}

} // namespace kvasir::test
