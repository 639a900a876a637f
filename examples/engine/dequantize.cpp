#include "examples/engine/dequantize.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Half.h>

#include <cstring>

namespace kvasir::example {

namespace {

/// ggml's blocks of 32 numbers of one row.
constexpr size_t block_numbers = 32;

/// number = scale * q + minimum; byte i holds number i in its low half, number 16 + i in its high.
struct q4_1_block {
  c10::Half scale;
  c10::Half minimum;
  uint8_t q[block_numbers / 2];

  void write(float* to) const {
    auto step = static_cast<float>(scale);
    auto from = static_cast<float>(minimum);
    for (size_t i = 0; i < block_numbers / 2; ++i) {
      to[i] = step * static_cast<float>(q[i] & 0x0f) + from;
      to[i + block_numbers / 2] = step * static_cast<float>(q[i] >> 4) + from;
    }
  }
};
static_assert(sizeof(q4_1_block) == 20);

/// number = scale * q
struct q8_0_block {
  c10::Half scale;
  int8_t q[block_numbers];

  void write(float* to) const {
    auto step = static_cast<float>(scale);
    for (size_t i = 0; i < block_numbers; ++i)
      to[i] = step * static_cast<float>(q[i]);
  }
};
static_assert(sizeof(q8_0_block) == 34);

template <class Block>
void write_blocks(std::span<const std::byte> data, float* to) {
  for (size_t at = 0; at < data.size(); at += sizeof(Block), to += block_numbers) {
    Block block; // The file aligns tensors as its writer pleased: no pointer into it.
    std::memcpy(&block, data.data() + at, sizeof block);
    block.write(to);
  }
}

} // namespace

at::Tensor dequantize(const gguf_tensor& stored) {
  auto result = at::empty(stored.shape, at::kFloat);
  auto to = result.mutable_data_ptr<float>();
  switch (stored.type) {
    case gguf_type::f32:
      std::memcpy(to, stored.data.data(), stored.data.size());
      break;
    case gguf_type::q4_1:
      write_blocks<q4_1_block>(stored.data, to);
      break;
    case gguf_type::q8_0:
      write_blocks<q8_0_block>(stored.data, to);
      break;
  }
  return result;
}

} // namespace kvasir::example
