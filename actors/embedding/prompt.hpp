// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/chunk_key.hpp"
#include "messages/key_digest.hpp"
#include "messages/storage_messages.hpp"
#include "messages/token_hash.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {

/// What all chunks of one tenant's prompts have in common in one client.
struct chunk_names {
  owner_id client = 0;
  uint32_t rank = 0;
  std::string tenant; ///< The salt.
  mp::chunk_key_prefix prefix;
  bool indexed = false; ///< Chunks are looked up in the index of a node, by their digest.

  object_key key(const mp::chunk_identity& chunk) const { return prefix.key(chunk, rank); }
};

/// Chunks `[first, first + identities.size())` of a prompt, as calls take them along.
struct chunk_range {
  std::shared_ptr<const chunk_names> names;
  std::vector<mp::chunk_identity> identities;
  std::vector<index_digest> digests{}; ///< Of the same chunks, if `names->indexed`.

  std::vector<object_key> keys() const {
    std::vector<object_key> result;
    result.reserve(identities.size());
    for (auto& identity : identities)
      result.push_back(names->key(identity));
    return result;
  }
};

/// A prompt's tokens with the names of its chunks, hashed once. Made by
/// `engine_client::make_prompt`, and of use to that client only.
///
/// Threading: const functions from several threads at once; `extend` from one alone. Calls take
/// along what they need: the prompt may change or die while they are under way.
class prompt {
public:
  prompt(std::shared_ptr<const chunk_names> names, const mp::token_hasher& hasher)
    : names_(std::move(names)),
      chain_(hasher) {}

  /// The prompt is `tokens` from now on, from its start; only what is new is hashed.
  void extend(std::span<const uint32_t> tokens) {
    token_count_ = tokens.size();
    chunk_count_ = chain_.extend(tokens);
    if (names_->indexed)
      update_digests();
  }

  size_t token_count() const noexcept { return token_count_; }

  /// Full chunks; the tokens behind them cannot be stored.
  size_t chunk_count() const noexcept { return chunk_count_; }

  const chunk_names& names() const noexcept { return *names_; }

  /// @pre `first + count <= chunk_count()`
  chunk_range range(size_t first, size_t count) const {
    chunk_range result{names_, {}};
    result.identities.reserve(count);
    for (size_t i = first; i < first + count; ++i)
      result.identities.push_back(chain_.chunk(i));
    if (names_->indexed) {
      result.digests.reserve(count);
      for (size_t i = first; i < first + count; ++i)
        result.digests.push_back(digests_[i].digest);
    }
    return result;
  }

private:
  struct known_digest {
    mp::chunk_identity of;
    index_digest digest;
  };

  void update_digests() {
    digests_.resize(std::max(digests_.size(), chunk_count_));
    for (size_t i = 0; i < chunk_count_; ++i)
      if (auto& known = digests_[i]; known.of != chain_.chunk(i))
        known = {chain_.chunk(i), digest_of(names_->key(chain_.chunk(i)))};
  }

  std::shared_ptr<const chunk_names> names_;
  mp::token_chain chain_;
  std::vector<known_digest> digests_;
  size_t token_count_ = 0;
  size_t chunk_count_ = 0;
};

} // namespace kvasir
