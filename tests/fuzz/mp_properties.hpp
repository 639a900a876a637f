// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/tensor_pickle.hpp"

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

} // namespace kvasir::mp::properties
