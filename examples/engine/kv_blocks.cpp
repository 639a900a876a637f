#include "examples/engine/kv_blocks.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <numeric>
#include <string>
#include <utility>

namespace kvasir::example {

kv_blocks::kv_blocks(const mp::kv_layout& layout, size_t count)
  : memory_(at::empty(
    {static_cast<int64_t>(count), 2, layout.layers, layout.slots, layout.hidden}, at::kFloat)),
    free_(count) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

int64_t kv_blocks::take() {
  auto block = free_.back();
  free_.pop_back();
  return block;
}

caf::expected<kv_sequence> kv_sequence::reserve(kv_blocks& from, size_t tokens) {
  auto slots = static_cast<size_t>(from.slots());
  auto count = (tokens + slots - 1) / slots;
  if (count > from.free_count())
    return caf::make_error(errc::out_of_memory, std::to_string(tokens) + " tokens need "
                                                  + std::to_string(count) + " KV blocks, and "
                                                  + std::to_string(from.free_count())
                                                  + " are free");
  std::vector<int64_t> table(count);
  for (auto& block : table)
    block = from.take();
  return kv_sequence{from, std::move(table)};
}

kv_sequence::kv_sequence(kv_blocks& from, std::vector<int64_t> table)
  : blocks_(&from),
    table_(std::move(table)),
    index_(at::tensor(table_)) {}

kv_sequence::~kv_sequence() {
  for (auto block : table_) // None if it was moved from.
    blocks_->give_back(block);
}

std::vector<at::Tensor> kv_sequence::chunks(size_t first, size_t last) const {
  std::vector<at::Tensor> result;
  for (auto i = first; i < last; ++i)
    result.push_back(blocks_->memory().select(0, table_[i]));
  return result;
}

void kv_sequence::write(int64_t layer, const at::Tensor& keys, const at::Tensor& values) {
  auto first = tokens_ - keys.size(0);
  auto block
    = blocks_->memory().select(0, table_[static_cast<size_t>(first / blocks_->slots())]);
  auto slots = block.select(1, layer).narrow(1, first % blocks_->slots(), keys.size(0));
  slots.select(0, 0).copy_(keys);
  slots.select(0, 1).copy_(values);
}

at::Tensor kv_sequence::gather(int64_t plane, int64_t layer) const {
  auto used = (tokens_ + blocks_->slots() - 1) / blocks_->slots();
  return blocks_->memory()
    .select(1, plane)
    .select(1, layer)
    .index_select(0, index_.narrow(0, 0, used))
    .flatten(0, 1)
    .narrow(0, 0, tokens_);
}

} // namespace kvasir::example
