#include "actors/embedding/engine_client.hpp"

#include "actors/embedding/tensor_chunks.hpp"

#include <utility>

namespace kvasir {

namespace {

using tensors = std::vector<at::Tensor>;

caf::error check_chunks(const engine_options& options, const tensors& kv) {
  return check_tensors(kv, options.layout.dtype, options.layout.shape(), "chunk");
}

} // namespace

caf::expected<std::unique_ptr<engine_client>>
engine_client::open(const engine_options& options) {
  auto core = engine_core::open(options, nullptr);
  if (!core)
    return std::move(core.error());
  return std::unique_ptr<engine_client>{new engine_client(std::move(*core))};
}

caf::expected<std::unique_ptr<engine_client>> engine_client::open(const engine_options& options,
                                                                  caf::actor_system& lent) {
  auto core = engine_core::open(options, &lent);
  if (!core)
    return std::move(core.error());
  return std::unique_ptr<engine_client>{new engine_client(std::move(*core))};
}

engine_client::~engine_client() {
  close();
}

void engine_client::close() {
  bytes_.close();
}

prompt engine_client::make_prompt(std::span<const uint32_t> tokens) const {
  return bytes_.make_prompt(tokens);
}

caf::expected<prompt> engine_client::make_prompt(std::span<const uint32_t> tokens,
                                                 std::string salt) const {
  return bytes_.make_prompt(tokens, std::move(salt));
}

// -- looking up -------------------------------------------------------------------------

call<held_prefix> engine_client::lookup(const prompt& what, const call_options& options) {
  return bytes_.lookup(what, options);
}

call<tensors> engine_client::view(const prompt& what, const call_options& options) {
  return bytes_.lookup_as<tensors>(what, options,
                                   [](held_prefix found) { return found.view(); });
}

call<tensors> engine_client::view(std::span<const uint32_t> tokens,
                                  const call_options& options) {
  return view(make_prompt(tokens), options);
}

tensors held_prefix::view() const {
  tensors result;
  if (!holds_)
    return result;
  auto& set = holds_.shared();
  auto& layout = set->core().options().layout;
  const auto shape = layout.shape();
  result.reserve(set->size());
  for (size_t i = 0; i < set->size(); ++i) {
    set->add_user(i);
    result.push_back(tensor_over(set->bytes(i).data(), layout.dtype, shape,
                                 [set, i] { set->remove_user(i); }));
  }
  return result;
}

// -- loading ----------------------------------------------------------------------------

call<load_result> engine_client::load(const prompt& what, tensors into, size_t first,
                                      const call_options& options) {
  if (auto why = check_chunks(this->options(), into))
    return call<load_result>{std::move(why)};
  return bytes_.load(what, target_of(std::move(into)), first, options);
}

call<load_result> engine_client::load(std::span<const uint32_t> tokens, tensors into) {
  return load(make_prompt(tokens), std::move(into));
}

call<load_result> engine_client::load(const held_prefix& from, tensors into,
                                      const call_options& options) {
  if (auto why = check_chunks(this->options(), into))
    return call<load_result>{std::move(why)};
  return bytes_.load(from, target_of(std::move(into)), options);
}

call<void> engine_client::load_layer(const held_prefix& from, size_t layer, tensors into,
                                     const call_options& options) {
  auto& layout = this->options().layout;
  if (auto why = check_tensors(into, layout.dtype, layer_shape(layout), "layer of chunk"))
    return call<void>{std::move(why)};
  return bytes_.load_layer(from, layer, target_of(std::move(into)), options);
}

// -- storing ----------------------------------------------------------------------------

call<store_result> engine_client::store(const prompt& what, tensors kv, size_t first,
                                        const call_options& options) {
  if (auto why = check_chunks(this->options(), kv))
    return call<store_result>{std::move(why)};
  return bytes_.store(what, source_of(std::move(kv)), first, options);
}

call<store_result> engine_client::store(std::span<const uint32_t> tokens, tensors kv) {
  return store(make_prompt(tokens), std::move(kv));
}

call<layer_store> engine_client::begin_store(const prompt& what, size_t first, size_t count,
                                             const call_options& options) {
  return bytes_.stage_as<layer_store>(what, first, count, options);
}

call<storage_status> engine_client::status(const call_options& options) {
  return bytes_.status(options);
}

} // namespace kvasir
