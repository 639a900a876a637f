// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvasir {

/// XXH3-64 of `bytes` with a seed: tells values apart that differ by accident; no defence
/// against forgery. The same on every machine and in every version: digests may be stored and
/// compared between nodes. Any thread.
uint64_t digest64(std::span<const std::byte> bytes, uint64_t seed);

} // namespace kvasir
