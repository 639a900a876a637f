// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "examples/engine/kv_blocks.hpp"
#include "examples/engine/llama_weights.hpp"

#include <span>

namespace kvasir::example {

/// Runs a Llama model: RMSNorm, RoPE, grouped-query attention over paged KV, SwiGLU.
///
/// Threading: const functions from several threads at once, each with a sequence of its own.
class llama_decoder {
public:
  explicit llama_decoder(llama_weights weights);

  const llama_shape& shape() const noexcept { return weights_.shape; }

  /// Runs tokens behind those of `kv`, and adds theirs to it.
  /// @returns what the model makes of each: [tokens, hidden]
  /// @pre tokens are of the vocabulary, and lie in one block of `kv`, which has room.
  at::Tensor forward(std::span<const uint32_t> tokens, kv_sequence& kv) const;

  /// The next token's scores: [rows, vocabulary]
  at::Tensor logits(const at::Tensor& hidden) const;

private:
  /// What all layers need to know of where the tokens are.
  struct place {
    at::Tensor cosine; ///< Of RoPE's angles, [tokens, 1, head_size / 2].
    at::Tensor sine;   ///< As `cosine`.
    at::Tensor mask;   ///< Who sees whom, [tokens, all tokens].
  };

  place place_of(int64_t first, int64_t count) const;
  at::Tensor rotate(const at::Tensor& heads, const place& where) const;
  at::Tensor attend(const at::Tensor& x, int64_t layer, const place& where,
                    kv_sequence& kv) const;
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;

  llama_weights weights_;
  at::Tensor frequencies_; ///< RoPE's angle per position, [head_size / 2].
};

} // namespace kvasir::example
