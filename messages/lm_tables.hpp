// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// The numbers and names of the lm:// protocol. Values on the wire: never change one.
///
/// Threading: pure functions over constant tables; safe from any thread.
/// Errors: an unknown number or name is an empty optional (or an empty name), never an assert.
/// Source: LMCache 0.5.6 `protocol.py`; recorded in `tests/golden/lm/tables.json`.
namespace kvasir::lm {

inline constexpr size_t max_key_size = 150;
inline constexpr size_t client_header_size = 186;
inline constexpr size_t server_header_size = 36;

enum class command : int32_t { put = 1, get, exist, list, health };

enum class return_code : int32_t { success = 200, fail = 400 };

/// What the four dimensions of a shape mean (T tokens, L layers, D hidden, 2 = K and V).
enum class memory_format : int32_t {
  undefined,
  kv_2ltd,       ///< [2,L,T,D]
  kv_t2d,        ///< [T,2,D]
  kv_2td,        ///< [2,T,D]
  binary,        ///< Opaque bytes, [size,0,0,0].
  binary_buffer, ///< Opaque bytes in a buffer, [size,0,0,0].
  kv_mla,        ///< [1,L,T,D]
  ec_td,         ///< [T,D]
  hs_td,         ///< [T,D]
};

/// Element types that can be sent. Compat: torch.half *is* torch.float16, so LMCache never
/// writes 1, reads it as 2 and answers 2.
enum class dtype_code : int32_t {
  none,
  half_alias,
  float16,
  bfloat16,
  float32,
  float64,
  uint8,
  float8_e4m3fn,
  float8_e5m2,
};

/// A backend of the client. Its server checks the range and forgets the value.
enum class location_code : int32_t { none, local_cpu, local_disk };

/// The enumerator of a wire value, or nothing if there is none.
std::optional<command> to_command(int32_t value);
std::optional<return_code> to_return_code(int32_t value);

std::string_view to_string(command value);

bool is_memory_format(int32_t value);
bool is_location(int32_t value);

/// The code that LMCache answers for `value`: 2 for the alias 1, otherwise `value` itself.
/// @returns nothing outside 0..8.
std::optional<int32_t> normalise_dtype(int32_t value);

/// Bytes of one element; 0 for `none` and for unknown codes.
size_t item_size(int32_t dtype);

/// LMCache's names ("KV_2LTD", "float16", "LocalCPUBackend"); empty for an unknown code.
/// Location 0 is "None".
std::string_view format_name(int32_t value);
std::string_view dtype_name(int32_t value);
std::string_view location_name(int32_t value);

/// Inverse of the above; `dtype_from_name` also takes torch's aliases half, float, double.
/// @returns nothing for names that the wire cannot carry, e.g. "int8", "float8_e4m3fnuz".
std::optional<int32_t> format_from_name(std::string_view name);
std::optional<int32_t> dtype_from_name(std::string_view name);
std::optional<int32_t> location_from_name(std::string_view name);

/// Index of the token dimension in a shape of this format; 0 for formats without one.
size_t token_dim(int32_t format);

/// The element types as they are written *inside a key*: more of them, other names, and no
/// relation to the dtype code beside the key.
struct key_dtype {
  std::string_view name;       ///< As in a key, e.g. "half".
  std::string_view torch_name; ///< What it stands for, e.g. "float16".
};

inline constexpr std::array<key_dtype, 14> key_dtypes{{
  {"half", "float16"},
  {"bfloat16", "bfloat16"},
  {"float", "float32"},
  {"double", "float64"},
  {"int8", "int8"},
  {"uint8", "uint8"},
  {"int16", "int16"},
  {"int32", "int32"},
  {"int64", "int64"},
  {"bool", "bool"},
  {"fp8_e4m3fn", "float8_e4m3fn"},
  {"fp8_e4m3fnuz", "float8_e4m3fnuz"},
  {"fp8_e5m2", "float8_e5m2"},
  {"fp8_e5m2fnuz", "float8_e5m2fnuz"},
}};

/// Is `name` one of the 14 above? Case matters.
bool is_key_dtype(std::string_view name);

} // namespace kvasir::lm
