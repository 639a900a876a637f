// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/object.hpp"
#include "messages/tensor_type.hpp"

#include <caf/expected.hpp>

#include <cstdint>

namespace kvasir::mp {

/// The largest chunk a layout may have: 1 TiB, far above any real one.
inline constexpr uint64_t max_chunk_bytes = uint64_t{1} << 40;

/// What one chunk of KV of one rank looks like, as an engine's worker registered it. Row-major
/// and contiguous:
///
///   single_plane:  [layers, slots, hidden]     MLA, or K and V fused
///   otherwise:     [2, layers, slots, hidden]  plane 0 is K, plane 1 is V
///
/// Made by `make_kv_layout` only, so that no size overflows.
/// Source: LMCache 0.5.6, register_kv_cache_engine_driven_context.
struct kv_layout {
  tensor_dtype dtype = tensor_dtype::float16;
  bool single_plane = false; ///< `use_mla` on the wire.
  uint32_t layers = 0;
  uint32_t slots = 0;      ///< Token slots of a chunk, `num_physical_slots` on the wire.
  uint32_t hidden = 0;     ///< KV heads of this rank times head size; elements, not bytes.
  uint32_t block_size = 0; ///< The engine's tokens a block; no part of shape and digest.

  tensor_shape shape() const;

  /// Bytes of one chunk, 1 .. `max_chunk_bytes`.
  uint64_t chunk_bytes() const;

  /// Of dtype and shape: two layouts have the same one exactly when chunks of one can be read
  /// as chunks of the other (but for a collision of 64 bits). Stable between nodes and
  /// versions.
  uint64_t digest() const;

  friend bool operator==(const kv_layout&, const kv_layout&) = default;
};

/// Checks a layout as it came from the wire.
/// @returns `wanted`, or
///   - `errc::invalid_argument` if a count is 0; the context names it,
///   - `errc::too_large` if a chunk exceeds `max_chunk_bytes`.
caf::expected<kv_layout> make_kv_layout(const kv_layout& wanted);

/// How objects that are chunks of this layout are described.
object_layout stored_layout(const kv_layout& layout);

} // namespace kvasir::mp
