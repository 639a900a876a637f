#include "messages/tensor_type.hpp"

#include <algorithm>

namespace kvasir {

namespace {

struct dtype_row {
  std::string_view name;
  size_t item_size_bytes;
};

constexpr std::array<dtype_row, tensor_dtype_count> dtype_rows{{
  {"float16", 2},
  {"bfloat16", 2},
  {"float32", 4},
  {"float64", 8},
  {"float8_e4m3fn", 1},
  {"float8_e5m2", 1},
  {"float8_e4m3fnuz", 1},
  {"float8_e5m2fnuz", 1},
  {"uint8", 1},
  {"int8", 1},
  {"int16", 2},
  {"int32", 4},
  {"int64", 8},
  {"bool", 1},
  {"uint16", 2},
  {"uint32", 4},
  {"uint64", 8},
}};

const dtype_row& row(tensor_dtype dtype) {
  return dtype_rows[static_cast<size_t>(dtype)];
}

} // namespace

std::string_view to_string(tensor_dtype dtype) {
  return row(dtype).name;
}

std::optional<tensor_dtype> tensor_dtype_from_name(std::string_view name) {
  const auto found = std::find_if(dtype_rows.begin(), dtype_rows.end(),
                                  [&](const dtype_row& x) { return x.name == name; });
  if (found == dtype_rows.end())
    return std::nullopt;
  return static_cast<tensor_dtype>(found - dtype_rows.begin());
}

size_t item_size_bytes(tensor_dtype dtype) {
  return row(dtype).item_size_bytes;
}

tensor_shape::tensor_shape(std::span<const uint64_t> dims) : rank_(dims.size()) {
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::optional<uint64_t> tensor_shape::element_count() const {
  if (std::ranges::find(dims(), 0u) != dims().end())
    return 0;
  uint64_t result = 1;
  for (const auto dim : dims())
    if (__builtin_mul_overflow(result, dim, &result))
      return std::nullopt;
  return result;
}

std::string to_string(const tensor_shape& shape) {
  std::string result = "[";
  for (const auto dim : shape.dims()) {
    if (result.size() > 1)
      result += ", ";
    result += std::to_string(dim);
  }
  return result + "]";
}

} // namespace kvasir
