// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/kv_layout.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace kvasir::example {

/// The engine's KV memory: blocks of a fixed number of tokens, [2, layers, slots, hidden] each.
/// That is the layout of a chunk of the cache: chunks are loaded into blocks, and stored from them,
/// as they are.
///
/// Threading: not thread-safe.
class kv_blocks {
public:
  /// @pre `layout` was made by `make_kv_layout`, of float32 and two planes.
  kv_blocks(const mp::kv_layout& layout, size_t count);

  int64_t slots() const noexcept { return memory_.size(3); }
  size_t free_count() const noexcept { return free_.size(); }

  /// All blocks: [blocks, 2, layers, slots, hidden]
  const at::Tensor& memory() const noexcept { return memory_; }

  /// @pre `free_count() > 0`
  int64_t take();
  void give_back(int64_t block) { free_.push_back(block); }

private:
  at::Tensor memory_;
  std::vector<int64_t> free_;
};

/// The KV of one sequence: its block table, and how many tokens are there.
///
/// Threading: not thread-safe. Lifetime: less than that of the blocks.
class kv_sequence {
public:
  /// Takes blocks for so many tokens.
  /// @returns `out_of_memory` if there are not enough.
  static caf::expected<kv_sequence> reserve(kv_blocks& from, size_t tokens);

  kv_sequence(kv_sequence&& other) noexcept = default;
  kv_sequence& operator=(kv_sequence&& other) = delete;
  ~kv_sequence();

  int64_t tokens() const noexcept { return tokens_; }

  /// Blocks `[first, last)` of the table, as chunks: tensors over the blocks' own memory.
  std::vector<at::Tensor> chunks(size_t first, size_t last) const;

  /// `count` more tokens are there: loaded already, or about to be written layer by layer.
  void extend(int64_t count) { tokens_ += count; }

  /// Writes keys and values of the last tokens of one layer, [count, hidden] each.
  /// @pre the tokens lie in one block.
  void write(int64_t layer, const at::Tensor& keys, const at::Tensor& values);

  /// One layer's keys or values (plane 0 or 1) of all tokens, [tokens, hidden]. A copy: libtorch's
  /// attention on CPUs does not follow block tables.
  at::Tensor gather(int64_t plane, int64_t layer) const;

private:
  kv_sequence(kv_blocks& from, std::vector<int64_t> table);

  kv_blocks* blocks_;
  std::vector<int64_t> table_;
  at::Tensor index_; ///< The table for libtorch.
  int64_t tokens_ = 0;
};

} // namespace kvasir::example
