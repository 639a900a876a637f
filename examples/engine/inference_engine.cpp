#include "examples/engine/inference_engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ostream>
#include <utility>

namespace kvasir::example {

namespace {

/// Seconds since it was made, or last asked.
class stopwatch {
public:
  double lap() {
    auto before = std::exchange(since_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(since_ - before).count();
  }

private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// A cache that fails costs time, never an answer.
void note_fault(const char* what, const caf::error& why, answer& into) {
  std::fprintf(stderr, "the cache could not %s: %s\n", what, to_string(why).c_str());
  ++into.cache_faults;
}

uint32_t likeliest(const at::Tensor& logits) {
  return static_cast<uint32_t>(logits.argmax().item<int64_t>());
}

} // namespace

engine_options cache_options(std::string model, const llama_shape& shape, uint64_t pool_bytes) {
  engine_options result;
  result.model = std::move(model);
  result.layout = {.dtype = tensor_dtype::float32,
                   .layers = static_cast<uint32_t>(shape.layers),
                   .slots = chunk_tokens,
                   .hidden = static_cast<uint32_t>(shape.kv_hidden()),
                   .block_size = chunk_tokens};
  result.pool_bytes = pool_bytes;
  return result;
}

inference_engine::inference_engine(llama_decoder model, engine_client& cache, size_t max_tokens)
  : model_(std::move(model)),
    cache_(cache),
    blocks_(cache.options().layout, (max_tokens + chunk_tokens - 1) / chunk_tokens) {}

caf::expected<answer> inference_engine::serve(const request& what) {
  auto& tokens = what.tokens;
  auto vocabulary = static_cast<uint64_t>(model_.shape().vocabulary);
  if (tokens.empty() || *std::max_element(tokens.begin(), tokens.end()) >= vocabulary)
    return caf::make_error(errc::invalid_argument,
                           "a prompt without tokens, or of unknown ones");
  auto kv = kv_sequence::reserve(blocks_, tokens.size() + what.max_new_tokens);
  if (!kv)
    return std::move(kv.error());

  answer result;
  stopwatch watch;
  // The last token is always computed: what the model makes of it is where the answer begins.
  auto prompt = cache_.make_prompt(std::span{tokens}.first(tokens.size() - 1));
  auto reused_chunks = load_prefix(prompt, *kv, result);
  result.load_seconds = watch.lap();

  auto logits = prefill(what, *kv);
  result.computed_tokens = tokens.size() - result.reused_tokens;
  result.prefill_seconds = watch.lap();

  prompt.extend(tokens);
  auto storing
    = cache_.store(prompt, kv->chunks(reused_chunks, prompt.chunk_count()), reused_chunks)
        .future();
  decode(what, std::move(logits), *kv, result);
  result.decode_seconds = watch.lap();

  // The blocks belong to the store until it ended.
  if (auto stored = storing.get())
    result.stored_chunks = stored->stored;
  else
    note_fault("store", stored.error(), result);
  return result;
}

size_t inference_engine::load_prefix(const prompt& known, kv_sequence& kv, answer& into) {
  auto loaded = cache_.load(known, kv.chunks(0, known.chunk_count())).get();
  if (!loaded) {
    note_fault("load", loaded.error(), into);
    return 0;
  }
  into.reused_tokens = loaded->tokens;
  into.cache_faults += loaded->corrupt;
  kv.extend(static_cast<int64_t>(loaded->tokens));
  return loaded->chunks;
}

at::Tensor inference_engine::prefill(const request& what, kv_sequence& kv) const {
  at::Tensor hidden;
  auto rest = std::span{what.tokens}.subspan(static_cast<size_t>(kv.tokens()));
  while (!rest.empty()) {
    auto pass = rest.first(std::min<size_t>(chunk_tokens, rest.size()));
    rest = rest.subspan(pass.size());
    hidden = model_.forward(pass, kv);
    if (what.logits != nullptr) {
      auto rows = model_.logits(hidden).contiguous();
      what.logits->write(static_cast<const char*>(rows.const_data_ptr()),
                         static_cast<std::streamsize>(rows.nbytes()));
    }
  }
  return model_.logits(hidden.narrow(0, hidden.size(0) - 1, 1));
}

void inference_engine::decode(const request& what, at::Tensor logits, kv_sequence& kv,
                              answer& into) const {
  while (into.tokens.size() < what.max_new_tokens) {
    auto next = likeliest(logits);
    if (next == what.end_token)
      return;
    into.tokens.push_back(next);
    if (into.tokens.size() < what.max_new_tokens)
      logits = model_.logits(model_.forward({&next, 1}, kv));
  }
}

} // namespace kvasir::example
