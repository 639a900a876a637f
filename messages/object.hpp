// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/meta/type_name.hpp>

#include <array>
#include <cstdint>
#include <string>

/// What an object is called, what it looks like and where its bytes rest. All three are plain
/// values: they are copied into messages, the bytes themselves never are.
namespace kvasir {

/// Names one object (a chunk of KV of one rank): the canonical bytes of its protocol's key, so
/// that two spellings of one key compare equal. lm:// keys are printable UTF-8
/// (`lm::parse_key`); keys of other protocols start with a NUL byte, which no lm:// key holds.
struct object_key {
  std::string bytes;

  friend bool operator==(const object_key&, const object_key&) = default;
};

/// Shape and element type as the writer declared them; kept verbatim and handed back.
/// Codes are those of the lm:// tables (`messages/lm_tables.hpp`).
struct object_layout {
  int32_t format = 0;             ///< Memory format code, e.g. 1 = KV_2LTD [2,L,T,D].
  int32_t dtype = 0;              ///< Element type code; 0 = none (opaque bytes).
  std::array<int32_t, 4> shape{}; ///< Missing trailing dimensions are 0.

  friend bool operator==(const object_layout&, const object_layout&) = default;
};

/// A byte range of this node's pool: what travels instead of a payload. Means nothing on
/// another node. Valid while the lease it came with lives.
struct slot {
  uint64_t offset_bytes = 0; ///< From the start of the pool; a multiple of 4096.
  uint64_t size_bytes = 0;   ///< Payload bytes, not the padding behind them.
  uint64_t generation = 0;   ///< Differs each time the same range is handed out.

  friend bool operator==(const slot&, const slot&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, object_key& x) {
  return f(caf::meta::type_name("object_key"), x.bytes);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, object_layout& x) {
  return f(caf::meta::type_name("object_layout"), x.format, x.dtype, x.shape);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, slot& x) {
  return f(caf::meta::type_name("slot"), x.offset_bytes, x.size_bytes, x.generation);
}

} // namespace kvasir
