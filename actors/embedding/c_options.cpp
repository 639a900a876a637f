#include "actors/embedding/c_options.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t max_options_bytes = 4096;

std::optional<tensor_dtype> dtype_of(uint32_t code) {
  switch (code) {
    case KVASIR_FLOAT16:
      return tensor_dtype::float16;
    case KVASIR_BFLOAT16:
      return tensor_dtype::bfloat16;
    case KVASIR_FLOAT32:
      return tensor_dtype::float32;
    case KVASIR_FLOAT64:
      return tensor_dtype::float64;
    case KVASIR_FLOAT8_E4M3FN:
      return tensor_dtype::float8_e4m3fn;
    case KVASIR_FLOAT8_E5M2:
      return tensor_dtype::float8_e5m2;
    case KVASIR_FLOAT8_E4M3FNUZ:
      return tensor_dtype::float8_e4m3fnuz;
    case KVASIR_FLOAT8_E5M2FNUZ:
      return tensor_dtype::float8_e5m2fnuz;
    case KVASIR_UINT8:
      return tensor_dtype::uint8;
    case KVASIR_INT8:
      return tensor_dtype::int8;
    case KVASIR_INT16:
      return tensor_dtype::int16;
    case KVASIR_INT32:
      return tensor_dtype::int32;
    case KVASIR_INT64:
      return tensor_dtype::int64;
    case KVASIR_BOOL:
      return tensor_dtype::boolean;
    case KVASIR_UINT16:
      return tensor_dtype::uint16;
    case KVASIR_UINT32:
      return tensor_dtype::uint32;
    case KVASIR_UINT64:
      return tensor_dtype::uint64;
    default: // Untrusted.
      return std::nullopt;
  }
}

caf::error wrong(std::string what) {
  return caf::make_error(errc::invalid_argument, std::move(what));
}

/// Of any version: what it lacks is zero, what it has more must be.
caf::expected<kvasir_options> own_version_of(const kvasir_options* given) {
  if (given == nullptr)
    return wrong("the options are NULL");
  if (given->struct_size < sizeof(given->struct_size) || given->struct_size > max_options_bytes)
    return wrong("the options' struct_size is " + std::to_string(given->struct_size));
  auto bytes = reinterpret_cast<const unsigned char*>(given);
  if (given->struct_size > sizeof(kvasir_options)
      && std::any_of(bytes + sizeof(kvasir_options), bytes + given->struct_size,
                     [](unsigned char byte) { return byte != 0; }))
    return wrong("the options have fields that this version does not know");
  kvasir_options result{};
  std::memcpy(&result, given, std::min(given->struct_size, sizeof(result)));
  return result;
}

} // namespace

caf::expected<engine_options> read_options(const kvasir_options* given) {
  auto read = own_version_of(given);
  if (!read)
    return std::move(read.error());
  auto& from = *read;
  if (from.model == nullptr)
    return wrong("the model is NULL");
  if (from.sharing > KVASIR_SHARED)
    return wrong("sharing is " + std::to_string(from.sharing));
  auto dtype = dtype_of(from.dtype);
  if (!dtype)
    return wrong("dtype is " + std::to_string(from.dtype));
  engine_options result;
  auto replace = [](auto& value, auto by) {
    if (by != 0)
      value = by;
  };
  result.model = from.model;
  replace(result.world_size, from.world_size);
  result.rank = from.rank;
  result.layout
    = {*dtype, from.single_plane != 0, from.layers, from.slots, from.hidden, from.block_size};
  replace(result.pool_bytes, from.pool_bytes);
  if (from.sharing == KVASIR_SHARED)
    result.shm = shm_pool::sharing::on;
  result.verify_loads = from.unverified_loads == 0;
  if (from.node != nullptr)
    result.node = from.node;
  if (from.eviction != nullptr)
    result.eviction = from.eviction;
  replace(result.copy_threads, from.copy_threads);
  replace(result.max_pending, from.max_pending);
  replace(result.max_inline_copy_bytes, from.max_inline_copy_bytes);
  return result;
}

} // namespace kvasir
