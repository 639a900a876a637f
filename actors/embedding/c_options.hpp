// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_options.hpp"
#include "actors/embedding/kvasir.h"

#include <caf/expected.hpp>

namespace kvasir {

/// Reads C's options, of any version, or null.
/// @returns them, not checked any further, or `invalid_argument`.
caf::expected<engine_options> read_options(const kvasir_options* given);

} // namespace kvasir
