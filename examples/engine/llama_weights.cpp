#include "examples/engine/llama_weights.hpp"

#include "examples/engine/dequantize.hpp"

#include <limits>
#include <utility>

namespace kvasir::example {

namespace {

/// Above any real one, and small enough that no product of two overflows.
constexpr int64_t max_dimension = 1 << 24;

caf::error malformed(std::string what) {
  return caf::make_error(errc::malformed_frame, "the GGUF file's model: " + std::move(what));
}

/// Reads many things of a file; the first that is not there, or not as it must be, fails all.
class model_reader {
public:
  explicit model_reader(const gguf_file& file) : file_(file) {}

  const caf::error& why() const noexcept { return why_; }

  int64_t dimension(const char* name) {
    auto found = keep(file_.integer("llama." + std::string{name}), uint64_t{1});
    if (found == 0 || found > max_dimension)
      fail(malformed(std::string{name} + " is " + std::to_string(found)));
    return why_ ? 1 : static_cast<int64_t>(found);
  }

  double number(const char* name) {
    auto found = keep(file_.number("llama." + std::string{name}), 1.0);
    if (!(found > 0 && found <= std::numeric_limits<float>::max()))
      fail(malformed(std::string{name} + " is not a positive number"));
    return found;
  }

  at::Tensor tensor(const std::string& name, std::vector<int64_t> shape) {
    auto stored = keep(file_.tensor(name), gguf_tensor{});
    if (!why_ && stored.shape != shape)
      fail(malformed("tensor " + name + " has another shape than the model's"));
    return why_ ? at::Tensor{} : dequantize(stored);
  }

  /// Queries and keys: GGUF has the two halves of a head, which RoPE turns together, as
  /// neighbours. We want them as halves again, so that cached keys are those of other engines.
  at::Tensor rotated_tensor(const std::string& name, int64_t heads, int64_t head_size,
                            int64_t hidden) {
    auto stored = tensor(name, {heads * head_size, hidden});
    if (why_)
      return {};
    return stored.view({heads, head_size / 2, 2, hidden})
      .transpose(1, 2)
      .reshape({heads * head_size, hidden});
  }

  void fail(caf::error why) {
    if (!why_)
      why_ = std::move(why);
  }

private:
  template <class T>
  T keep(caf::expected<T> found, T otherwise) {
    if (found)
      return std::move(*found);
    fail(std::move(found.error()));
    return otherwise;
  }

  const gguf_file& file_;
  caf::error why_;
};

llama_shape read_shape(model_reader& from) {
  llama_shape result;
  result.layers = from.dimension("block_count");
  result.heads = from.dimension("attention.head_count");
  result.kv_heads = from.dimension("attention.head_count_kv");
  result.head_size = from.dimension("rope.dimension_count");
  result.hidden = from.dimension("embedding_length");
  result.feed_forward = from.dimension("feed_forward_length");
  result.vocabulary = from.dimension("vocab_size");
  result.context = from.dimension("context_length");
  result.rope_base = from.number("rope.freq_base");
  result.norm_epsilon = from.number("attention.layer_norm_rms_epsilon");
  if (result.heads % result.kv_heads != 0 || result.head_size % 2 != 0)
    from.fail(malformed("its heads cannot be shared out or rotated"));
  return result;
}

llama_layer read_layer(model_reader& from, const llama_shape& shape, int64_t index) {
  auto name = [prefix = "blk." + std::to_string(index)](const char* part) {
    return prefix + "." + part + ".weight";
  };
  auto hidden = shape.hidden;
  auto attended = shape.heads * shape.head_size;
  llama_layer result;
  result.attention_norm = from.tensor(name("attn_norm"), {hidden});
  result.query = from.rotated_tensor(name("attn_q"), shape.heads, shape.head_size, hidden);
  result.key = from.rotated_tensor(name("attn_k"), shape.kv_heads, shape.head_size, hidden);
  result.value = from.tensor(name("attn_v"), {shape.kv_hidden(), hidden});
  result.attention_out = from.tensor(name("attn_output"), {hidden, attended});
  result.feed_norm = from.tensor(name("ffn_norm"), {hidden});
  result.gate = from.tensor(name("ffn_gate"), {shape.feed_forward, hidden});
  result.up = from.tensor(name("ffn_up"), {shape.feed_forward, hidden});
  result.down = from.tensor(name("ffn_down"), {hidden, shape.feed_forward});
  return result;
}

} // namespace

caf::expected<llama_weights> llama_weights::load(const gguf_file& file) {
  if (auto name = file.text("general.architecture"); !name || *name != "llama")
    return malformed("its architecture is not llama");
  model_reader from{file};
  llama_weights result;
  result.shape = read_shape(from);
  auto& shape = result.shape;
  result.embedding = from.tensor("token_embd.weight", {shape.vocabulary, shape.hidden});
  for (int64_t i = 0; i < shape.layers && !from.why(); ++i)
    result.layers.push_back(read_layer(from, shape, i));
  result.output_norm = from.tensor("output_norm.weight", {shape.hidden});
  result.output = file.has_tensor("output.weight")
                    ? from.tensor("output.weight", {shape.vocabulary, shape.hidden})
                    : result.embedding;
  if (from.why())
    return from.why();
  return result;
}

} // namespace kvasir::example
