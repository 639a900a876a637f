// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "examples/engine/gguf_file.hpp"

#include <ATen/core/Tensor.h>

namespace kvasir::example {

/// The shape of a model of the Llama family.
struct llama_shape {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0; ///< Each serves `heads / kv_heads` heads.
  int64_t head_size = 0;
  int64_t hidden = 0;       ///< Numbers that stand for a token between layers.
  int64_t feed_forward = 0; ///< And inside a layer's feed-forward network.
  int64_t vocabulary = 0;
  int64_t context = 0; ///< Tokens that the model was made for.
  double rope_base = 0;
  double norm_epsilon = 0;

  int64_t kv_hidden() const noexcept { return kv_heads * head_size; }
};

/// One layer's weights; matrices are [to, from].
struct llama_layer {
  at::Tensor attention_norm; ///< [hidden]
  at::Tensor query;          ///< [heads * head_size, hidden]
  at::Tensor key;            ///< [kv_heads * head_size, hidden]
  at::Tensor value;          ///< As `key`.
  at::Tensor attention_out;  ///< [hidden, heads * head_size]
  at::Tensor feed_norm;      ///< [hidden]
  at::Tensor gate;           ///< [feed_forward, hidden]
  at::Tensor up;             ///< As `gate`.
  at::Tensor down;           ///< [hidden, feed_forward]
};

/// A Llama model in float32, as computed on CPUs without units for bfloat16.
struct llama_weights {
  llama_shape shape;
  at::Tensor embedding; ///< [vocabulary, hidden]
  std::vector<llama_layer> layers;
  at::Tensor output_norm; ///< [hidden]
  at::Tensor output; ///< [vocabulary, hidden]; the embedding itself if the file has no other.

  /// Reads and dequantizes all of a file.
  /// @returns `malformed_frame` or `not_found` if it holds no complete Llama model.
  static caf::expected<llama_weights> load(const gguf_file& file);
};

} // namespace kvasir::example
