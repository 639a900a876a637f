// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "fuzz/lm_properties.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace kvasir::lm::properties {

/// Stops a fuzzer where a property does not hold.
inline int require(const char* broken) {
  if (broken != nullptr) {
    std::fprintf(stderr, "property: %s\n", broken);
    std::abort();
  }
  return 0;
}

} // namespace kvasir::lm::properties
