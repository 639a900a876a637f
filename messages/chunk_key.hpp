// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/object.hpp"
#include "messages/token_hash.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// How a chunk of a prompt becomes an object: every field that tells two chunks apart is part of
/// the key, so that no two of them can meet.
namespace kvasir::mp {

/// All that names one rank's share of a chunk. Aggregate on purpose: there is no default for any
/// field.
struct chunk_key {
  chunk_identity chunk;
  uint32_t world_size; ///< Ranks that together hold the chunk, 1..255.
  uint32_t rank;       ///< 0..world_size - 1.
  uint64_t layout_digest;
  std::string salt;
  std::string model;

  friend bool operator==(const chunk_key&, const chunk_key&) = default;
};

/// The parts of a key that all chunks of one prompt share, written once for many keys.
///
/// Bytes of a key (integers big-endian):
///   0       NUL: not a key of lm://
///   1       format, 1
///   2..5    kv_rank: world << 24 | rank << 16 | world << 8 | rank (LMCache's)
///   6..13   layout digest
///   14..45  token hash
///   46..53  second, independent digest of the tokens: a collision of the first is a miss
///   54..55  length of the salt in bytes, then the salt, then the model name
class chunk_key_prefix {
public:
  /// @pre the salt has less than 64 KiB
  chunk_key_prefix(uint32_t world_size, uint64_t layout_digest, std::string_view salt,
                   std::string_view model);

  object_key key(const chunk_identity& chunk, uint32_t rank) const;

private:
  uint32_t world_size_;
  std::string text_; ///< A whole key with empty hash and rank 0.
};

/// @returns the parts of a key that `chunk_key_prefix` wrote; nothing for any other.
std::optional<chunk_key> parse_chunk_key(std::string_view bytes);

/// For people: `model@world@rank@hash`, and `@salt` if there is one; the hash in hex.
std::string display_text(const chunk_key& key);

} // namespace kvasir::mp
