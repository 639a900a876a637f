// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "arrays.hpp"

namespace kvasir_python {

/// Client, Prompt, Prefix and Layers, whose `begin_...` return calls.
void bind_client(nb::module_& module);

} // namespace kvasir_python
