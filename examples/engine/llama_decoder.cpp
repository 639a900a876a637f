#include "examples/engine/llama_decoder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <utility>

namespace kvasir::example {

llama_decoder::llama_decoder(llama_weights weights) : weights_(std::move(weights)) {
  auto size = shape().head_size;
  auto exponents = at::arange(0, size, 2, at::kFloat) / static_cast<double>(size);
  frequencies_ = at::pow(shape().rope_base, exponents).reciprocal();
}

llama_decoder::place llama_decoder::place_of(int64_t first, int64_t count) const {
  auto all = at::arange(first + count);
  auto ours = all.narrow(0, first, count).unsqueeze(1);
  auto angles = (ours * frequencies_).unsqueeze(1);
  return {angles.cos(), angles.sin(), all.le(ours)};
}

at::Tensor llama_decoder::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return at::rms_norm(x, {shape().hidden}, weight, shape().norm_epsilon);
}

at::Tensor llama_decoder::rotate(const at::Tensor& heads, const place& where) const {
  auto halves = heads.chunk(2, -1);
  return at::cat({halves[0] * where.cosine - halves[1] * where.sine,
                  halves[1] * where.cosine + halves[0] * where.sine},
                 -1);
}

at::Tensor llama_decoder::attend(const at::Tensor& x, int64_t layer, const place& where,
                                 kv_sequence& kv) const {
  auto& weights = weights_.layers[static_cast<size_t>(layer)];
  auto count = x.size(0);
  auto heads_of = [&](const at::Tensor& rows, int64_t heads) {
    return rows.view({rows.size(0), heads, shape().head_size});
  };
  auto query = rotate(heads_of(at::linear(x, weights.query), shape().heads), where);
  auto key = rotate(heads_of(at::linear(x, weights.key), shape().kv_heads), where);
  kv.write(layer, key.flatten(1), at::linear(x, weights.value));

  auto batch_of = [](const at::Tensor& heads) {
    return heads.transpose(0, 1).unsqueeze(0);
  };
  auto keys = batch_of(heads_of(kv.gather(0, layer), shape().kv_heads));
  auto values = batch_of(heads_of(kv.gather(1, layer), shape().kv_heads));
  auto attended = at::scaled_dot_product_attention(batch_of(query), keys, values, where.mask,
                                                   /*dropout_p=*/0, /*is_causal=*/false,
                                                   /*scale=*/{}, /*enable_gqa=*/true);
  return at::linear(attended.squeeze(0).transpose(0, 1).reshape({count, -1}),
                    weights.attention_out);
}

at::Tensor llama_decoder::forward(std::span<const uint32_t> tokens, kv_sequence& kv) const {
  auto where = place_of(kv.tokens(), static_cast<int64_t>(tokens.size()));
  kv.extend(static_cast<int64_t>(tokens.size()));
  std::vector<int64_t> ids(tokens.begin(), tokens.end());
  auto x = weights_.embedding.index_select(0, at::tensor(ids));
  for (int64_t i = 0; i < shape().layers; ++i) {
    auto& layer = weights_.layers[static_cast<size_t>(i)];
    x = x + attend(norm(x, layer.attention_norm), i, where, kv);
    auto normed = norm(x, layer.feed_norm);
    auto fed = at::silu(at::linear(normed, layer.gate)) * at::linear(normed, layer.up);
    x = x + at::linear(fed, layer.down);
  }
  return norm(x, weights_.output_norm);
}

at::Tensor llama_decoder::logits(const at::Tensor& hidden) const {
  return at::linear(hidden, weights_.output);
}

} // namespace kvasir::example
