// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/expected.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// What LMCache's redis, valkey, fs, mooncake, … connectors store in front of an object. lm://
/// itself never carries it; unlike lm:// it describes each KV group of the object.
///
///   int32 little-endian: length, fmt, then per group dtype, s0, s1, s2, s3
///
/// Threading: pure functions.
/// Source: LMCache 0.5.6 `protocol.py`, `RemoteMetadata`; recorded in
/// `tests/golden/lm/remote_metadata.json`.
namespace kvasir::lm {

/// More groups than any model has; a limit on what is parsed and allocated.
inline constexpr size_t max_group_count = 64;

struct metadata_group {
  int32_t dtype = 0;              ///< As on lm://; 1 reads as 2.
  std::array<int32_t, 4> shape{}; ///< Missing trailing dimensions are 0.

  friend bool operator==(const metadata_group&, const metadata_group&) = default;
};

struct remote_metadata {
  int32_t length = 0; ///< Bytes of all groups together.
  int32_t format = 0;
  std::vector<metadata_group> groups;

  friend bool operator==(const remote_metadata&, const remote_metadata&) = default;
};

/// Size of the metadata of so many groups.
constexpr size_t remote_metadata_size(size_t group_count) {
  return (2 + 5 * group_count) * 4;
}

/// Reads metadata of exactly `group_count` groups: the bytes do not say how many there are,
/// LMCache fixes the number per process.
/// @returns
///   - `errc::invalid_argument` if `group_count` is 0 or above `max_group_count`,
///   - `errc::malformed_frame` if `bytes` has another size, the length is negative, or a format
///     or dtype is unknown.
caf::expected<remote_metadata> parse_remote_metadata(std::span<const std::byte> bytes,
                                                     size_t group_count);

/// Writes metadata for a process that expects `group_count` groups.
/// @returns `errc::invalid_argument` if `metadata` has another number of groups, 0 or more than
/// `max_group_count`, or a field outside its table.
caf::expected<std::vector<std::byte>> encode_remote_metadata(const remote_metadata& metadata,
                                                             size_t group_count);

} // namespace kvasir::lm
