#include "actors/embedding/byte_client.hpp"

namespace kvasir {

namespace {

constexpr size_t max_salt_bytes = 128;

caf::error wrong(std::string what) {
  return caf::make_error(errc::invalid_argument, std::move(what));
}

template <class Bytes>
caf::error check_sizes(const std::vector<Bytes>& buffers, uint64_t size_bytes,
                       const char* what) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto name = std::string{what} + " " + std::to_string(i);
    if (buffers[i].data() == nullptr)
      return wrong(name + " is null");
    if (buffers[i].size() != size_bytes)
      return caf::make_error(errc::layout_mismatch,
                             name + " has " + std::to_string(buffers[i].size()) + " bytes, not "
                               + std::to_string(size_bytes));
  }
  return caf::none;
}

template <class Bytes>
caf::error check_layer(const std::vector<Bytes>& buffers, size_t chunks, const char* chunk_kind,
                       const layer_planes& planes) {
  if (buffers.size() != chunks)
    return wrong(std::to_string(buffers.size()) + " buffers for " + std::to_string(chunks)
                 + chunk_kind);
  return check_sizes(buffers, planes.count * planes.size_bytes, "layer of chunk");
}

/// Tells the staged chunks how a put ended before its caller learns it.
class put_sink final : public call_sink<void> {
public:
  put_sink(std::shared_ptr<stage_set> staged, std::shared_ptr<call_state<void>> state)
    : staged_(std::move(staged)),
      state_(std::move(state)) {}

  void settle(caf::expected<void> outcome) override {
    std::exchange(staged_, nullptr)->end_put(outcome ? caf::error{} : outcome.error());
    state_->settle(std::move(outcome));
  }

private:
  std::shared_ptr<stage_set> staged_;
  std::shared_ptr<call_state<void>> state_;
};

} // namespace

/// A range of a prompt that exists and is this client's.
caf::error byte_client::check_range(const prompt& what, size_t first, size_t count) const {
  if (what.names().client != core_->owner())
    return wrong("the prompt was made by another client");
  if (first > what.chunk_count() || count > what.chunk_count() - first)
    return wrong("chunks " + std::to_string(first) + " to " + std::to_string(first + count)
                 + " of a prompt of " + std::to_string(what.token_count())
                 + " tokens, which has " + std::to_string(what.chunk_count())
                 + " full chunks of " + std::to_string(core_->hasher().chunk_size()));
  return caf::none;
}

caf::error byte_client::check_holder(const held_prefix& from) const {
  if (from.holds() && from.holds()->shared_core() != core_)
    return wrong("the prefix is held by another client");
  return caf::none;
}

reserve_chunks byte_client::claim_of(const prompt& what, size_t first, size_t count) const {
  reserve_chunks claim{
    core_->owner(), what.names().tenant, core_->stored_as(), core_->chunk_bytes(), {}};
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

prompt byte_client::make_prompt(std::span<const uint32_t> tokens) const {
  prompt result{core_->plain_names(), core_->hasher()};
  result.extend(tokens);
  return result;
}

caf::expected<prompt> byte_client::make_prompt(std::span<const uint32_t> tokens,
                                               std::string salt) const {
  if (salt.size() > max_salt_bytes)
    return wrong("a salt of " + std::to_string(salt.size()) + " bytes, not 128");
  prompt result{core_->names_of(std::move(salt)), core_->hasher()};
  result.extend(tokens);
  return result;
}

// -- loading ----------------------------------------------------------------------------

call<load_result> byte_client::load(const prompt& what, load_call::target into, size_t first,
                                    const call_options& options) {
  if (auto why = check_range(what, first, into.chunks.size()))
    return call<load_result>{std::move(why)};
  if (auto why = check_sizes(into.chunks, core_->chunk_bytes(), "chunk"))
    return call<load_result>{std::move(why)};
  auto range = what.range(first, into.chunks.size());
  return start_chained<lookup_call, load_call>(core_, options, std::move(into),
                                               std::move(range));
}

call<load_result> byte_client::load(const held_prefix& from, load_call::target into,
                                    const call_options& options) {
  if (auto why = check_holder(from))
    return call<load_result>{std::move(why)};
  if (auto why = check_sizes(into.chunks, core_->chunk_bytes(), "chunk"))
    return call<load_result>{std::move(why)};
  return start<load_call, load_result>(core_, options, from.holds().another(), std::move(into));
}

call<void> byte_client::load_layer(const held_prefix& from, size_t layer,
                                   load_call::target into, const call_options& options) {
  auto& layout = core_->options().layout;
  const layer_planes planes{layout};
  if (auto why = check_holder(from))
    return call<void>{std::move(why)};
  if (layer >= layout.layers)
    return call<void>{
      wrong("layer " + std::to_string(layer) + " of " + std::to_string(layout.layers))};
  if (auto why = check_layer(into.chunks, from.chunks(), " held chunks", planes))
    return call<void>{std::move(why)};
  copy_call::job job;
  for (size_t i = 0; i < into.chunks.size(); ++i)
    for (size_t plane = 0; plane < planes.count; ++plane)
      job.pieces.push_back({into.chunks[i].data() + plane * planes.size_bytes,
                            from.holds()->bytes(i).data() + planes.offset(plane, layer),
                            planes.size_bytes});
  job.owners.push_back(std::make_shared<const hold_user>(from.holds().another()));
  job.owners.push_back(std::move(into.owner));
  return start<copy_call, void>(core_, options, std::move(job));
}

// -- storing ----------------------------------------------------------------------------

call<store_result> byte_client::store(const prompt& what, store_call::source from, size_t first,
                                      const call_options& options) {
  if (auto why = check_range(what, first, from.chunks.size()))
    return call<store_result>{std::move(why)};
  if (auto why = check_sizes(from.chunks, core_->chunk_bytes(), "chunk"))
    return call<store_result>{std::move(why)};
  auto claim = claim_of(what, first, from.chunks.size());
  return start<store_call, store_result>(core_, options, std::move(claim), std::move(from));
}

call<void> put_layer(const std::shared_ptr<stage_set>& staged, size_t layer,
                     store_call::source from, const call_options& options) {
  auto& core = staged->core();
  const layer_planes planes{core.options().layout};
  if (auto why = check_layer(from.chunks, staged->size(), " chunks", planes))
    return call<void>{std::move(why)};
  if (auto why = check(options))
    return call<void>{std::move(why)};
  if (auto why = staged->begin_put(layer))
    return call<void>{std::move(why)};
  copy_call::job job;
  for (size_t i = 0; i < from.chunks.size(); ++i) {
    auto where = staged->where(i);
    for (size_t plane = 0; where && plane < planes.count; ++plane)
      job.pieces.push_back({core.pool() + where->offset_bytes + planes.offset(plane, layer),
                            from.chunks[i].data() + plane * planes.size_bytes,
                            planes.size_bytes});
  }
  job.owners.push_back(staged);
  job.owners.push_back(std::move(from.owner));
  auto state = std::make_shared<call_state<void>>();
  std::shared_ptr<call_sink<void>> sink = std::make_shared<put_sink>(staged, state);
  core.launch<copy_call>(pending_calls::clock::now() + options.deadline, options.stop,
                         std::move(sink), std::move(job));
  return call<void>{std::move(state)};
}

call<store_result> commit_layers(std::shared_ptr<stage_set> staged,
                                 const call_options& options) {
  auto core = staged->shared_core();
  return start<commit_call, store_result>(core, options, std::move(staged));
}

// -- the client -------------------------------------------------------------------------

call<storage_status> byte_client::status(const call_options& options) {
  return start<status_call, storage_status>(core_, options);
}

} // namespace kvasir
