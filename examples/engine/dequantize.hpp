// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "examples/engine/gguf_file.hpp"

namespace at {
class Tensor;
}

namespace kvasir::example {

/// A tensor of the file as float32, of the same shape, in memory of its own.
at::Tensor dequantize(const gguf_tensor& stored);

} // namespace kvasir::example
