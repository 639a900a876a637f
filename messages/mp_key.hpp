// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::mp {

/// What a request is about: tokens `[start, end)` of a prompt, of one rank or of all. Texts are
/// UTF-8.
/// Source: LMCache 0.5.6 `IPCCacheServerKey`.
struct cache_key {
  std::string model_name;            ///< 1..1024 bytes, without '@'.
  uint32_t world_size = 1;           ///< KV ranks, 1..255.
  std::optional<uint32_t> worker_id; ///< Below `world_size`; none: all ranks.
  std::vector<uint32_t> token_ids;   ///< Always the whole prompt so far.
  uint64_t start = 0;
  uint64_t end = 0;
  std::string request_id;      ///< At most 4096 bytes.
  std::string cache_salt;      ///< At most 128 characters, without @ / \ and NUL.
  uint32_t num_kv_readers = 0; ///< 0..128; 0: an old client.

  friend bool operator==(const cache_key&, const cache_key&) = default;
};

/// Decodes a key: a map by names in any order, unknown names ignored, the last of equal names
/// counts. Names that may be missing: worker_id, cache_salt, request_configs (ignored),
/// num_kv_readers.
/// @returns the key, or `errc::malformed_frame` if it is no such map, `errc::invalid_argument` if
/// a field is missing, of another type or out of its range; the context names it.
caf::expected<cache_key> parse_cache_key(std::span<const std::byte> frame);

/// Whether a client may call its tenant so: at most 128 characters of UTF-8,
/// without @ / \ and NUL. Empty: the nameless tenant.
bool is_cache_salt(std::string_view text);

} // namespace kvasir::mp
