#include "actors/embedding/engine_client.hpp"

#include "actors/embedding/stage_set.hpp"
#include "actors/embedding/start_call.hpp"
#include "actors/embedding/tensor_chunks.hpp"

#include <utility>

namespace kvasir {

namespace {

constexpr size_t max_salt_bytes = 128;

using tensors = std::vector<at::Tensor>;

/// A range of a prompt that exists and is this client's.
caf::error check_range(const engine_core& core, const prompt& what, size_t first,
                       size_t count) {
  if (what.names().client != core.owner())
    return caf::make_error(errc::invalid_argument, "the prompt was made by another client");
  if (first > what.chunk_count() || count > what.chunk_count() - first)
    return caf::make_error(errc::invalid_argument,
                           "chunks " + std::to_string(first) + " to "
                             + std::to_string(first + count) + " of a prompt of "
                             + std::to_string(what.token_count()) + " tokens, which has "
                             + std::to_string(what.chunk_count()) + " full chunks of "
                             + std::to_string(core.hasher().chunk_size()));
  return caf::none;
}

caf::error check_chunks(const engine_core& core, const tensors& kv) {
  auto& layout = core.options().layout;
  return check_tensors(kv, layout.dtype, layout.shape(), "chunk");
}

reserve_chunks claim_of(const engine_core& core, const prompt& what, size_t first,
                        size_t count) {
  reserve_chunks claim{
    core.owner(), what.names().tenant, core.stored_as(), core.chunk_bytes(), {}};
  claim.chunks.reserve(count);
  object_key parent;
  if (first > 0)
    parent = what.range(first - 1, 1).keys().front();
  for (auto& key : what.range(first, count).keys()) {
    claim.chunks.push_back({key, parent});
    parent = key;
  }
  return claim;
}

load_call::target target_of(tensors into) {
  auto bytes = writable_bytes_of(into);
  return {std::move(bytes), std::make_shared<const tensors>(std::move(into))};
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
  core_->close();
}

prompt engine_client::make_prompt(std::span<const uint32_t> tokens) const {
  prompt result{core_->plain_names(), core_->hasher()};
  result.extend(tokens);
  return result;
}

caf::expected<prompt> engine_client::make_prompt(std::span<const uint32_t> tokens,
                                                 std::string salt) const {
  if (salt.size() > max_salt_bytes)
    return caf::make_error(errc::invalid_argument,
                           "a salt of " + std::to_string(salt.size()) + " bytes, not 128");
  prompt result{core_->names_of(std::move(salt)), core_->hasher()};
  result.extend(tokens);
  return result;
}

// -- looking up -------------------------------------------------------------------------

call<held_prefix> engine_client::lookup(const prompt& what, const call_options& options) {
  if (auto why = check_range(*core_, what, 0, 0))
    return call<held_prefix>{std::move(why)};
  return start_mapped<lookup_call, held_prefix>(
    core_, options, [](hold_user holds) { return held_prefix{std::move(holds)}; },
    what.range(0, what.chunk_count()));
}

call<tensors> engine_client::view(const prompt& what, const call_options& options) {
  if (auto why = check_range(*core_, what, 0, 0))
    return call<tensors>{std::move(why)};
  return start_mapped<lookup_call, tensors>(
    core_, options, [](hold_user holds) { return held_prefix{std::move(holds)}.view(); },
    what.range(0, what.chunk_count()));
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
  if (auto why = check_range(*core_, what, first, into.size()))
    return call<load_result>{std::move(why)};
  if (auto why = check_chunks(*core_, into))
    return call<load_result>{std::move(why)};
  auto range = what.range(first, into.size());
  return start_chained<lookup_call, load_call>(core_, options, target_of(std::move(into)),
                                               std::move(range));
}

call<load_result> engine_client::load(std::span<const uint32_t> tokens, tensors into) {
  return load(make_prompt(tokens), std::move(into));
}

call<load_result> engine_client::load(const held_prefix& from, tensors into,
                                      const call_options& options) {
  if (auto why = check_chunks(*core_, into))
    return call<load_result>{std::move(why)};
  if (from.holds() && from.holds()->shared_core() != core_)
    return call<load_result>{
      caf::make_error(errc::invalid_argument, "the prefix is held by another client")};
  return start<load_call, load_result>(core_, options, from.holds().another(),
                                       target_of(std::move(into)));
}

call<void> engine_client::load_layer(const held_prefix& from, size_t layer, tensors into,
                                     const call_options& options) {
  auto& layout = core_->options().layout;
  if (from.holds() && from.holds()->shared_core() != core_)
    return call<void>{
      caf::make_error(errc::invalid_argument, "the prefix is held by another client")};
  if (layer >= layout.layers)
    return call<void>{
      caf::make_error(errc::invalid_argument, "layer " + std::to_string(layer) + " of "
                                                + std::to_string(layout.layers))};
  if (into.size() != from.chunks())
    return call<void>{caf::make_error(errc::invalid_argument,
                                      std::to_string(into.size()) + " tensors for "
                                        + std::to_string(from.chunks()) + " held chunks")};
  if (auto why = check_tensors(into, layout.dtype, layer_shape(layout), "layer of chunk"))
    return call<void>{std::move(why)};
  copy_call::job job;
  auto targets = writable_bytes_of(into);
  const layer_planes planes{layout};
  for (size_t i = 0; i < into.size(); ++i)
    for (size_t plane = 0; plane < planes.count; ++plane)
      job.pieces.push_back({targets[i].data() + plane * planes.size_bytes,
                            from.holds()->bytes(i).data() + planes.offset(plane, layer),
                            planes.size_bytes});
  job.owners.push_back(std::make_shared<const hold_user>(from.holds().another()));
  job.owners.push_back(std::make_shared<const tensors>(std::move(into)));
  return start<copy_call, void>(core_, options, std::move(job));
}

// -- storing ----------------------------------------------------------------------------

call<store_result> engine_client::store(const prompt& what, tensors kv, size_t first,
                                        const call_options& options) {
  if (auto why = check_range(*core_, what, first, kv.size()))
    return call<store_result>{std::move(why)};
  if (auto why = check_chunks(*core_, kv))
    return call<store_result>{std::move(why)};
  store_call::source from{bytes_of(kv), nullptr};
  auto claim = claim_of(*core_, what, first, kv.size());
  from.owner = std::make_shared<const tensors>(std::move(kv));
  return start<store_call, store_result>(core_, options, std::move(claim), std::move(from));
}

call<store_result> engine_client::store(std::span<const uint32_t> tokens, tensors kv) {
  return store(make_prompt(tokens), std::move(kv));
}

call<layer_store> engine_client::begin_store(const prompt& what, size_t first, size_t count,
                                             const call_options& options) {
  if (auto why = check_range(*core_, what, first, count))
    return call<layer_store>{std::move(why)};
  return start_mapped<stage_call, layer_store>(
    core_, options,
    [](std::shared_ptr<stage_set> staged) { return layer_store{std::move(staged)}; },
    claim_of(*core_, what, first, count));
}

call<storage_status> engine_client::status(const call_options& options) {
  return start<status_call, storage_status>(core_, options);
}

} // namespace kvasir
