#include "messages/lm_shape.hpp"

#include "messages/lm_tables.hpp"

#include <algorithm>

namespace kvasir::lm {

namespace {

bool is_binary(int32_t format) {
  return format == static_cast<int32_t>(memory_format::binary)
         || format == static_cast<int32_t>(memory_format::binary_buffer);
}

} // namespace

std::optional<std::array<int32_t, 4>> pad_shape(std::span<const int32_t> dims) {
  std::array<int32_t, 4> result{};
  if (dims.size() > result.size())
    return std::nullopt;
  std::copy(dims.begin(), dims.end(), result.begin());
  return result;
}

size_t dim_count(const object_layout& layout) {
  size_t count = layout.shape.size();
  if (is_binary(layout.format))
    return count;
  while (count > 1 && layout.shape[count - 1] == 0)
    --count;
  return count;
}

std::optional<uint64_t> byte_size(const object_layout& layout) {
  uint64_t result = item_size(layout.dtype);
  const auto count = dim_count(layout);
  // All signs first: a negative dimension is no tensor even if another one is 0.
  for (size_t i = 0; i < count; ++i)
    if (layout.shape[i] < 0)
      return std::nullopt;
  // A dimension of 0 empties the tensor, also if the others would overflow.
  for (size_t i = 0; i < count; ++i)
    if (layout.shape[i] == 0)
      return 0;
  for (size_t i = 0; i < count; ++i)
    if (__builtin_mul_overflow(result, static_cast<uint64_t>(layout.shape[i]), &result))
      return std::nullopt;
  return result;
}

bool contradicts(const object_layout& layout, uint64_t length_bytes) {
  if (is_binary(layout.format) || layout.dtype == static_cast<int32_t>(dtype_code::none))
    return false;
  if (layout.shape == std::array<int32_t, 4>{})
    return false;
  const auto size = byte_size(layout);
  return !size || length_bytes > *size;
}

} // namespace kvasir::lm
