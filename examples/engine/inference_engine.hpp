// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_client.hpp"
#include "examples/engine/kv_blocks.hpp"
#include "examples/engine/llama_decoder.hpp"

#include <iosfwd>
#include <optional>

namespace kvasir::example {

/// Tokens of a chunk of the cache, of a block of the engine, and of a forward pass. They are one
/// number because rounding depends on how many rows are computed together: so a chunk has the same
/// bits whoever computed it, and an answer is the same with and without the cache.
inline constexpr uint32_t chunk_tokens = 32;

/// What the cache has to know of this engine.
/// @param model names the weights: who uses the same name gets our KV.
engine_options cache_options(std::string model, const llama_shape& shape, uint64_t pool_bytes);

struct request {
  std::vector<uint32_t> tokens; ///< The prompt.
  /// 0: the prompt's KV is computed and stored, and that is all.
  size_t max_new_tokens = 0;
  /// Ends the answer, and is not part of it.
  std::optional<uint32_t> end_token;
  /// Gets the logits of all prompt tokens that are computed: float32, row by row.
  std::ostream* logits = nullptr;
};

struct answer {
  std::vector<uint32_t> tokens;
  size_t reused_tokens = 0;   ///< Of the prompt: from the cache.
  size_t computed_tokens = 0; ///< Of the prompt: the others.
  size_t stored_chunks = 0;
  size_t cache_faults = 0; ///< Cache calls that failed: the request went on without them.
  double load_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

/// Serves requests with a model and a cache, one after the other.
///
/// Threading: one thread at a time. Lifetime: less than that of `cache`.
class inference_engine {
public:
  /// @param max_tokens bounds a request's prompt and answer together.
  inference_engine(llama_decoder model, engine_client& cache, size_t max_tokens);

  /// The life of a request: what the cache has of the prompt is loaded, the rest is computed and
  /// stored, and the answer is decoded greedily while the store is under way.
  /// @returns `invalid_argument` for no tokens or unknown ones, `out_of_memory` for too many.
  caf::expected<answer> serve(const request& what);

private:
  size_t load_prefix(const prompt& known, kv_sequence& kv, answer& into);
  at::Tensor prefill(const request& what, kv_sequence& kv) const;
  void decode(const request& what, at::Tensor logits, kv_sequence& kv, answer& into) const;

  llama_decoder model_;
  engine_client& cache_;
  kv_blocks blocks_;
};

} // namespace kvasir::example
