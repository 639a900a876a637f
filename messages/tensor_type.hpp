// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Element types and shapes of tensors, as torch names them.
///
/// Threading: pure functions and values.
namespace kvasir {

/// The order is ours; only names cross the wire.
enum class tensor_dtype : uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  uint8,
  int8,
  int16,
  int32,
  int64,
  boolean,
  uint16,
  uint32,
  uint64,
};

inline constexpr size_t tensor_dtype_count = 17;

/// The name of torch's attribute, e.g. "float8_e4m3fn"; that of `boolean` is "bool".
std::string_view to_string(tensor_dtype dtype);

std::optional<tensor_dtype> tensor_dtype_from_name(std::string_view name);

/// Bytes of one element: 1, 2, 4 or 8.
size_t item_size_bytes(tensor_dtype dtype);

/// Up to eight dimensions, the slowest first (row-major). None at all is a scalar.
class tensor_shape {
public:
  static constexpr size_t max_rank = 8;

  tensor_shape() = default;

  /// @pre `dims.size() <= max_rank`
  explicit tensor_shape(std::span<const uint64_t> dims);

  std::span<const uint64_t> dims() const { return std::span{dims_}.first(rank_); }

  /// Product of the dimensions, or nothing if it exceeds 64 bits. A zero among them makes it 0,
  /// whatever the others are.
  std::optional<uint64_t> element_count() const;

  friend bool operator==(const tensor_shape&, const tensor_shape&) = default;

private:
  std::array<uint64_t, max_rank> dims_{}; // 0 beyond the rank, so that == compares values
  size_t rank_ = 0;
};

/// "[2, 32, 256, 1024]"
std::string to_string(const tensor_shape& shape);

} // namespace kvasir
