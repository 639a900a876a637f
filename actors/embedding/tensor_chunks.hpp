// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_calls.hpp"
#include "messages/kv_layout.hpp"

#include <ATen/core/Tensor.h>
#include <caf/expected.hpp>

#include <cstddef>
#include <functional>
#include <vector>

/// Between tensors and the bytes of chunks.
namespace kvasir {

at::ScalarType scalar_type(tensor_dtype dtype);

/// The shape of one layer of a chunk.
tensor_shape layer_shape(const mp::kv_layout& layout);

/// Whether bytes of these tensors can be copied as they are.
/// @param what for the text, e.g. "chunk"
/// @returns none, `layout_mismatch` for another dtype or shape, or `invalid_argument` for a
/// tensor that is not defined, not contiguous, or not in the CPU's memory.
caf::error check_tensors(const std::vector<at::Tensor>& tensors, tensor_dtype dtype,
                         const tensor_shape& shape, const char* what);

/// The tensors' bytes, with the tensors as their owner.
/// @pre checked
store_call::source source_of(std::vector<at::Tensor> tensors);
load_call::target target_of(std::vector<at::Tensor> tensors);

/// A tensor over memory that is not its own; `gone` is called when its storage dies.
at::Tensor tensor_over(std::byte* data, tensor_dtype dtype, const tensor_shape& shape,
                       std::function<void()> gone);

} // namespace kvasir
