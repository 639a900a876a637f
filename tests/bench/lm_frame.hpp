#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

/// The lm:// frames as the benchmark writes them. Deliberately not the codec of `messages/`: a
/// load generator that shares the server's codec shares its mistakes.
namespace kvasir::bench::lm {

enum class command : std::int32_t { put = 1, get = 2, exist = 3 };

inline constexpr std::int32_t code_ok = 200;
inline constexpr std::size_t key_size = 150;

/// Nine little-endian int32 (command, length, fmt, dtype, location, shape[4]), then the key,
/// padded with blanks.
using request_bytes = std::array<char, 36 + key_size>;

/// Nine little-endian int32: code, length, fmt, dtype, shape[4], location.
using reply_bytes = std::array<char, 36>;

namespace detail {

inline constexpr std::int32_t format_kv_2ltd = 1;
inline constexpr std::int32_t dtype_float16 = 2;
inline constexpr std::int32_t dtype_uint8 = 6;

} // namespace detail

/// @pre `key.size() <= key_size`; for a PUT, `length` is even (the shape has two halves, K and
/// V).
inline request_bytes make_request(command what, std::string_view key, std::int32_t length = 0) {
  std::array<std::int32_t, 9> fields{static_cast<std::int32_t>(what), length,
                                     detail::format_kv_2ltd, detail::dtype_float16};
  if (what == command::put) {
    fields[3] = detail::dtype_uint8;
    fields[5] = 2;
    fields[6] = 1;
    fields[7] = 1;
    fields[8] = length / 2;
  }
  request_bytes result;
  std::memcpy(result.data(), fields.data(), sizeof fields);
  std::memset(result.data() + sizeof fields, ' ', key_size);
  std::memcpy(result.data() + sizeof fields, key.data(), key.size());
  return result;
}

inline reply_bytes make_reply(std::int32_t code, std::int32_t length = 0) {
  std::array<std::int32_t, 9> fields{code, length, detail::format_kv_2ltd,
                                     detail::dtype_float16};
  if (length > 0) {
    fields[3] = detail::dtype_uint8;
    fields[4] = 2;
    fields[5] = 1;
    fields[6] = 1;
    fields[7] = length / 2;
  }
  reply_bytes result;
  std::memcpy(result.data(), fields.data(), sizeof fields);
  return result;
}

/// The int32 at `index` (0-based, in fields) of a request or a reply.
template <class Bytes>
std::int32_t field(const Bytes& bytes, std::size_t index) {
  std::int32_t result = 0;
  std::memcpy(&result, bytes.data() + index * sizeof result, sizeof result);
  return result;
}

} // namespace kvasir::bench::lm
