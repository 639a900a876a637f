#include "actors/embedding/layer_store.hpp"

#include "actors/embedding/byte_client.hpp"
#include "actors/embedding/tensor_chunks.hpp"

#include <utility>

namespace kvasir {

call<void> layer_store::put(size_t layer, std::vector<at::Tensor> kv,
                            const call_options& options) {
  if (!staged_)
    return call<void>{caf::make_error(errc::not_reserved, "the store was committed")};
  auto& layout = staged_->core().options().layout;
  if (auto why = check_tensors(kv, layout.dtype, layer_shape(layout), "layer of chunk"))
    return call<void>{std::move(why)};
  return put_layer(staged_, layer, source_of(std::move(kv)), options);
}

call<store_result> layer_store::commit(const call_options& options) && {
  auto staged = std::move(staged_);
  if (!staged)
    return call<store_result>{caf::make_error(errc::not_reserved, "the store was committed")};
  return commit_layers(std::move(staged), options);
}

} // namespace kvasir
