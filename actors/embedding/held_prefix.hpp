// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/hold_set.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace kvasir {

/// What a lookup found: chunks of a prompt from where the lookup began, without a gap. They stay
/// as they are until this, and all tensors made of it, are gone.
///
/// Threading: const functions from several threads at once. May outlive its client.
class held_prefix {
public:
  held_prefix() = default;
  explicit held_prefix(hold_user holds) noexcept : holds_(std::move(holds)) {}

  size_t chunks() const noexcept { return holds_ ? holds_->size() : 0; }
  size_t tokens() const noexcept {
    return holds_ ? holds_->size() * holds_->core().hasher().chunk_size() : 0;
  }

  /// One tensor per chunk, of the registered layout's shape, over the cache's own memory: no
  /// copy, and it must not be written. Each holds its chunk for as long as its storage lives.
  std::vector<at::Tensor> view() const;

  /// Ends the hold early.
  void release() { holds_.reset(); }

  const hold_user& holds() const noexcept { return holds_; }

private:
  hold_user holds_;
};

} // namespace kvasir
