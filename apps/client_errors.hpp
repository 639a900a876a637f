// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "apps/client_commands.hpp"

#include <caf/error.hpp>

namespace kvasir::client {

/// Prints the error's text. @returns the exit code for its kind.
int fail(const caf::error& error);

} // namespace kvasir::client
