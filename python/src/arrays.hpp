// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/kvasir.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Between arrays (torch, numpy, whatever speaks DLPack or the buffer protocol) and bytes.
namespace kvasir_python {

namespace nb = nanobind;

/// Throws the Python exception of this code.
[[noreturn]] void raise(int32_t code, std::string_view text);
[[noreturn]] inline void raise(const kvasir_error& error) {
  raise(error.code, error.text);
}

/// What a chunk looks like.
struct array_layout {
  uint32_t dtype = 0; ///< A `kvasir_dtype`.
  std::vector<size_t> chunk_shape;
  std::vector<size_t> layer_shape;
};

/// @returns a `kvasir_dtype`; raises InvalidArgumentError.
uint32_t dtype_from_name(const std::string& name);

/// Arrays whose bytes C may use while this lives. With the GIL, but for `buffers`.
class array_bytes {
public:
  enum class use : uint8_t { read, write };

  /// Raises InvalidArgumentError or LayoutMismatchError with the index of what is wrong.
  array_bytes(nb::sequence arrays, uint32_t dtype, const std::vector<size_t>& shape, use how);

  const kvasir_buffer* buffers() const noexcept { return buffers_.data(); }
  size_t count() const noexcept { return buffers_.size(); }

private:
  template <class Array>
  void add(nb::handle from, uint32_t dtype, const std::vector<size_t>& shape);

  std::vector<nb::ndarray<nb::ro>> owners_;
  std::vector<kvasir_buffer> buffers_;
};

/// Tokens as C takes them, from an array of integers or any iterable of them.
std::vector<uint32_t> tokens_of(nb::handle from);

/// An array over a held chunk, whose hold ends with the array's memory.
nb::object array_over(kvasir_chunk* chunk, const array_layout& layout);

} // namespace kvasir_python
