// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace kvasir::mp {

/// One msgpack value of a request, as far as requests of the MP protocol go: a scalar, an array
/// of numbers, or a map from names to these. Anything deeper is checked to be well-formed, and
/// its content left out (`kind::other`).
///
/// Texts and binaries point into the bytes that were parsed.
struct msgpack_value {
  /// A map may have this many fields. The protocol's largest has ten, but what a newer client
  /// adds is skipped, not refused. A field takes a hundred times the memory of its shortest
  /// spelling.
  static constexpr uint32_t max_fields = 64;

  struct field;

  enum class kind : uint8_t { nil, boolean, integer, real, text, binary, integers, map, other };

  kind what = kind::nil;
  bool boolean = false;
  bool negative = false; ///< Then `integer` is the two's complement of an int64.
  uint64_t integer = 0;
  double real = 0;
  std::string_view text;             ///< Of a text; any bytes.
  std::span<const std::byte> binary; ///< Of a binary.
  /// Of an array of integers that all fit.
  std::vector<uint32_t> integers;
  std::vector<field> fields;

  /// The last field of that name; null if there is none.
  msgpack_value* find(std::string_view name);

  std::optional<uint64_t> as_unsigned(uint64_t lowest, uint64_t highest) const;
};

struct msgpack_value::field {
  std::string_view name;
  msgpack_value value;
};

/// Parses one frame. Memory is proportional to the frame, however long it claims its arrays to be.
/// @returns the value, or `errc::malformed_frame`: not well-formed, bytes behind the value, or
/// nested too deep.
caf::expected<msgpack_value> parse_msgpack(std::span<const std::byte> frame);

} // namespace kvasir::mp
