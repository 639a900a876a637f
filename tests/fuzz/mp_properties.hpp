// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/mp_protocol.hpp"
#include "messages/tensor_pickle.hpp"
#include "support/mp_encode.hpp"

#include <array>
#include <string>
#include <vector>

/// What must hold for any bytes whatsoever, shared by the fuzzers of the MP protocol and the
/// tests that replay their corpora. Each returns nullptr or says what does not hold.
namespace kvasir::mp::properties {

/// A list is refused, or all its tensors lie within the bytes and have the size of their shape.
/// What is written of them reads the same.
inline const char* check_tensor_list(std::span<const std::byte> bytes) {
  const auto views = read_tensor_list(bytes);
  if (!views)
    return views.error() == errc::malformed_frame || views.error() == errc::layout_mismatch
               || views.error() == errc::too_large
             ? nullptr
             : "an undocumented error";
  if (views->size() > max_tensor_count)
    return "too many tensors";
  for (const auto& view : *views) {
    if (view.offset_bytes > bytes.size() || view.size_bytes > bytes.size() - view.offset_bytes)
      return "a tensor beyond the input";
    const auto count = view.shape.element_count();
    if (!count || view.size_bytes != *count * item_size_bytes(view.dtype))
      return "a tensor of another size than its shape's";
    if (*count == 0)
      continue;
    const auto writer = tensor_list_writer::make(view.dtype, view.shape, 1);
    if (!writer)
      return "a tensor that was read cannot be written";
    std::vector<std::byte> written{writer->piece(0).begin(), writer->piece(0).end()};
    const auto raw = bytes.subspan(view.offset_bytes, view.size_bytes);
    written.insert(written.end(), raw.begin(), raw.end());
    written.insert(written.end(), writer->piece(1).begin(), writer->piece(1).end());
    if (written.size() != writer->total_bytes())
      return "a list of another size than announced";
    const auto again = read_tensor_list(written);
    if (!again || again->size() != 1 || again->front().dtype != view.dtype
        || again->front().shape != view.shape || again->front().size_bytes != view.size_bytes
        || again->front().offset_bytes != writer->piece(0).size())
      return "a tensor reads differently after writing";
  }
  return nullptr;
}

/// Splits fuzzer input into frames: two bytes of length before each, the rest is the last.
inline std::vector<std::span<const std::byte>> split_frames(std::span<const std::byte> bytes) {
  std::vector<std::span<const std::byte>> frames;
  while (bytes.size() > 2 && frames.size() < 6) {
    auto size = std::to_integer<size_t>(bytes[0]) | std::to_integer<size_t>(bytes[1]) << 8;
    bytes = bytes.subspan(2);
    size = std::min(size, bytes.size());
    frames.push_back(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return frames;
}

/// A key that parsed says the same after it was written.
inline const char* check_same_key(const cache_key& key) {
  auto text = test::encode_key(key);
  auto again = parse_cache_key(std::as_bytes(std::span{text}));
  if (!again)
    return "a key that parsed does not parse when written";
  return *again == key ? nullptr : "a key reads differently after writing";
}

/// The first frame is the operation, the others its arguments. It is refused with a documented
/// error, or what parsed keeps its meaning when written.
inline const char* check_request(std::span<const std::byte> bytes) {
  auto frames = split_frames(bytes);
  if (frames.empty())
    return nullptr;
  auto what = parse_operation(frames[0]);
  if (!what)
    return what.error() == errc::malformed_frame || what.error() == errc::not_found
             ? nullptr
             : "an undocumented error of an operation";
  auto parsed = parse_request(*what, std::span{frames}.subspan(1));
  if (!parsed)
    return parsed.error() == errc::malformed_frame || parsed.error() == errc::not_found
               || parsed.error() == errc::invalid_argument
             ? nullptr
             : "an undocumented error of a request";
  return std::visit(
    [&](const auto& request) -> const char* {
      using type = std::decay_t<decltype(request)>;
      if constexpr (requires { request.key; }) {
        return check_same_key(request.key);
      } else if constexpr (std::is_same_v<type, register_request>) {
        auto text = test::encode_registration_argument(request);
        std::array<std::span<const std::byte>, 1> argument{std::as_bytes(std::span{text})};
        auto again = parse_request(*what, argument);
        return again && std::get<register_request>(*again) == request
                 ? nullptr
                 : "a registration reads differently after writing";
      } else {
        return nullptr;
      }
    },
    *parsed);
}

} // namespace kvasir::mp::properties
