#include "actors/embedding/layer_store.hpp"

#include "actors/embedding/stage_set.hpp"
#include "actors/embedding/start_call.hpp"
#include "actors/embedding/tensor_chunks.hpp"

#include <utility>

namespace kvasir {

namespace {

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

call<void> layer_store::put(size_t layer, std::vector<at::Tensor> kv,
                            const call_options& options) {
  if (!staged_)
    return call<void>{caf::make_error(errc::not_reserved, "the store was committed")};
  auto& core = staged_->core();
  auto& layout = core.options().layout;
  if (kv.size() != staged_->size())
    return call<void>{
      caf::make_error(errc::invalid_argument, std::to_string(kv.size()) + " tensors for "
                                                + std::to_string(staged_->size()) + " chunks")};
  if (auto why = check_tensors(kv, layout.dtype, layer_shape(layout), "layer of chunk"))
    return call<void>{std::move(why)};
  if (auto why = check(options))
    return call<void>{std::move(why)};
  if (auto why = staged_->begin_put(layer))
    return call<void>{std::move(why)};
  copy_call::job job;
  auto sources = bytes_of(kv);
  const layer_planes planes{layout};
  for (size_t i = 0; i < kv.size(); ++i) {
    auto where = staged_->where(i);
    for (size_t plane = 0; where && plane < planes.count; ++plane)
      job.pieces.push_back({core.pool() + where->offset_bytes + planes.offset(plane, layer),
                            sources[i].data() + plane * planes.size_bytes, planes.size_bytes});
  }
  job.owners.push_back(staged_);
  job.owners.push_back(std::make_shared<const std::vector<at::Tensor>>(std::move(kv)));
  auto state = std::make_shared<call_state<void>>();
  std::shared_ptr<call_sink<void>> sink = std::make_shared<put_sink>(staged_, state);
  core.launch<copy_call>(pending_calls::clock::now() + options.deadline, options.stop,
                         std::move(sink), std::move(job));
  return call<void>{std::move(state)};
}

call<store_result> layer_store::commit(const call_options& options) && {
  auto staged = std::move(staged_);
  if (!staged)
    return call<store_result>{caf::make_error(errc::not_reserved, "the store was committed")};
  auto core = staged->shared_core();
  return start<commit_call, store_result>(core, options, std::move(staged));
}

} // namespace kvasir
