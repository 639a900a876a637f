#include "actors/embedding/tensor_chunks.hpp"

#include <ATen/ops/from_blob.h>

#include <utility>

namespace kvasir {

namespace {

std::vector<int64_t> sizes_of(const tensor_shape& shape) {
  std::vector<int64_t> result;
  for (auto size : shape.dims())
    result.push_back(static_cast<int64_t>(size));
  return result;
}

std::string text_of(at::IntArrayRef sizes) {
  std::vector<uint64_t> dims(sizes.begin(), sizes.end());
  if (dims.size() <= tensor_shape::max_rank)
    return to_string(tensor_shape{dims});
  return std::to_string(dims.size()) + " dimensions";
}

/// Empty, or what is wrong with where and how its elements lie.
std::string memory_fault(const at::Tensor& tensor) {
  if (!tensor.defined())
    return "is not defined";
  if (!tensor.device().is_cpu())
    return "is on " + tensor.device().str() + ", not in the CPU's memory";
  if (tensor.layout() != at::kStrided || !tensor.has_storage())
    return "is not strided";
  if (!tensor.is_contiguous())
    return "is not contiguous";
  if (tensor.is_neg())
    return "has its sign in a flag (resolve_neg)";
  return {};
}

} // namespace

at::ScalarType scalar_type(tensor_dtype dtype) {
  switch (dtype) {
    case tensor_dtype::float16:
      return at::kHalf;
    case tensor_dtype::bfloat16:
      return at::kBFloat16;
    case tensor_dtype::float32:
      return at::kFloat;
    case tensor_dtype::float64:
      return at::kDouble;
    case tensor_dtype::float8_e4m3fn:
      return at::kFloat8_e4m3fn;
    case tensor_dtype::float8_e5m2:
      return at::kFloat8_e5m2;
    case tensor_dtype::float8_e4m3fnuz:
      return at::kFloat8_e4m3fnuz;
    case tensor_dtype::float8_e5m2fnuz:
      return at::kFloat8_e5m2fnuz;
    case tensor_dtype::uint8:
      return at::kByte;
    case tensor_dtype::int8:
      return at::kChar;
    case tensor_dtype::int16:
      return at::kShort;
    case tensor_dtype::int32:
      return at::kInt;
    case tensor_dtype::int64:
      return at::kLong;
    case tensor_dtype::boolean:
      return at::kBool;
    case tensor_dtype::uint16:
      return at::kUInt16;
    case tensor_dtype::uint32:
      return at::kUInt32;
    case tensor_dtype::uint64:
      return at::kUInt64;
  }
  return at::ScalarType::Undefined;
}

tensor_shape layer_shape(const mp::kv_layout& layout) {
  const uint64_t dims[] = {2, layout.slots, layout.hidden};
  return tensor_shape{std::span{dims}.subspan(layout.single_plane ? 1 : 0)};
}

caf::error check_tensors(const std::vector<at::Tensor>& tensors, tensor_dtype dtype,
                         const tensor_shape& shape, const char* what) {
  const auto type = scalar_type(dtype);
  const auto sizes = sizes_of(shape);
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto& tensor = tensors[i];
    auto name = [&] {
      return std::string{what} + " " + std::to_string(i) + " ";
    };
    if (auto fault = memory_fault(tensor); !fault.empty())
      return caf::make_error(errc::invalid_argument, name() + fault);
    if (tensor.scalar_type() != type)
      return caf::make_error(errc::layout_mismatch, name() + "is of "
                                                      + c10::toString(tensor.scalar_type())
                                                      + ", not " + c10::toString(type));
    if (tensor.sizes() != at::IntArrayRef{sizes})
      return caf::make_error(errc::layout_mismatch, name() + "is of shape "
                                                      + text_of(tensor.sizes()) + ", not "
                                                      + to_string(shape));
  }
  return caf::none;
}

store_call::source source_of(std::vector<at::Tensor> tensors) {
  store_call::source result;
  result.chunks.reserve(tensors.size());
  for (auto& tensor : tensors)
    result.chunks.emplace_back(static_cast<const std::byte*>(tensor.const_data_ptr()),
                               tensor.nbytes());
  result.owner = std::make_shared<const std::vector<at::Tensor>>(std::move(tensors));
  return result;
}

load_call::target target_of(std::vector<at::Tensor> tensors) {
  load_call::target result;
  result.chunks.reserve(tensors.size());
  for (auto& tensor : tensors)
    result.chunks.emplace_back(static_cast<std::byte*>(tensor.mutable_data_ptr()),
                               tensor.nbytes());
  result.owner = std::make_shared<const std::vector<at::Tensor>>(std::move(tensors));
  return result;
}

at::Tensor tensor_over(std::byte* data, tensor_dtype dtype, const tensor_shape& shape,
                       std::function<void()> gone) {
  return at::from_blob(
    data, sizes_of(shape), [gone = std::move(gone)](void*) { gone(); },
    at::TensorOptions().dtype(scalar_type(dtype)));
}

} // namespace kvasir
