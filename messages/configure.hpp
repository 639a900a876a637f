// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/fwd.hpp>

namespace kvasir {

/// Registers kvasir's message types and error category. Call it on a configuration before the
/// actor system is built from it; CAF reads both only then.
void configure(caf::actor_system_config& config);

} // namespace kvasir
