// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/expected.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// The rolling hash that names the chunks of a prompt: equal prefixes have equal hashes.
///
///   hash[0] = H(none, tokens[0 : C]),  hash[i] = H(hash[i - 1], tokens[i * C : (i + 1) * C])
///
/// Only full chunks of C tokens have a hash; what is left at the end has none.
///
/// Threading: values; a chain belongs to one thread at a time.
/// Source: LMCache 0.5.6 `TokenHasher`; recorded in `tests/golden/mp/token_hash.json`.
namespace kvasir::mp {

using token_hash = std::array<std::byte, 32>;

/// H of the formula above.
enum class token_hash_algorithm : uint8_t {
  /// BLAKE3 of prefix | each token as big-endian uint32. LMCache's default; the same in every
  /// process.
  blake3,
  /// SHA-256 of the canonical CBOR of [prefix, [token, ...], null], which is what vLLM calls by
  /// this name. The same in all processes that share `none`.
  sha256_cbor,
};

/// The algorithm of a name in a configuration, "blake3" or "sha256_cbor".
/// @returns `errc::invalid_argument` for another, with what is wrong with it: LMCache's
/// "builtin" is Python's own hash(), which differs from one process to the next.
caf::expected<token_hash_algorithm> parse_token_hash_algorithm(std::string_view name);

/// What stands in for the hash before the first chunk.
///
///   blake3:       BLAKE3 of 12 zero bytes; `python_hash_seed` plays no part.
///   sha256_cbor:  SHA-256 of the CBOR text of the environment variable PYTHONHASHSEED. Where
///                 that is unset, vLLM takes 32 random bytes: give those to `token_hasher`.
token_hash none_hash(token_hash_algorithm algorithm, std::string_view python_hash_seed);

/// The hash of one node: the same for all of its prompts.
class token_hasher {
public:
  /// @pre `chunk_size` (tokens) is not 0, and `hash_bits` lies in 1..256.
  /// @param hash_bits a test hook: keeps the first so many bits of each hash and clears the
  /// rest, so that tests can have collisions. Digests stay whole.
  token_hasher(token_hash_algorithm algorithm, const token_hash& none, uint32_t chunk_size,
               unsigned hash_bits = 256);

  /// The hash of the chunk of `tokens` after the chunk with hash `previous`.
  token_hash next(const token_hash& previous, std::span<const uint32_t> tokens) const;

  const token_hash& none() const { return none_; }
  uint32_t chunk_size() const { return chunk_size_; }

private:
  token_hash_algorithm algorithm_;
  token_hash none_;
  uint32_t chunk_size_;
  unsigned hash_bits_;
};

/// What is known of one full chunk and all tokens before it.
struct chunk_identity {
  token_hash hash;
  /// XXH3-64 of the chunk's tokens (as little-endian uint32), seeded with the digest of the
  /// chunk before, 0 for the first. Independent of `hash`: whoever files an object under its
  /// hash files the digest with it, and one that differs is a miss instead of foreign KV.
  uint64_t digest;

  friend bool operator==(const chunk_identity&, const chunk_identity&) = default;
};

/// The hashes of one prompt that grows: every request repeats all tokens from the start, only
/// new full chunks are hashed. Keeps the tokens to compare them, because a request id can come
/// back with other tokens, and those must never get the old hashes.
///
/// Memory: 4 bytes a token, 40 a chunk; whoever accepts the tokens limits their number.
class token_chain {
public:
  explicit token_chain(const token_hasher& hasher) : hasher_(hasher) {}

  /// Makes chunks 0 .. result - 1 those of `tokens`, the whole prompt from its start.
  ///
  /// Tokens that the chain already has are only compared. A prefix of what it has leaves the
  /// chain as long as it is. Where a token differs, that chunk and all after it start anew.
  /// @returns the number of full chunks in `tokens`, at most `chunk_count()`.
  size_t extend(std::span<const uint32_t> tokens);

  /// @pre `index < chunk_count()`
  const chunk_identity& chunk(size_t index) const { return chunks_[index]; }

  size_t chunk_count() const { return chunks_.size(); }

  /// The tokens of the longest prompt since one differed.
  std::span<const uint32_t> tokens() const { return tokens_; }

private:
  token_hasher hasher_;
  std::vector<uint32_t> tokens_;
  std::vector<chunk_identity> chunks_; ///< Of all full chunks in `tokens_`.
};

} // namespace kvasir::mp
