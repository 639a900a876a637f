// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/call.hpp"
#include "actors/embedding/engine_calls.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}

namespace kvasir {

class stage_set;

/// A store whose layers come one by one, as an engine computes them. Nothing is readable before
/// `commit`; without it, all is given back.
///
/// Threading: `put` from several threads at once. May outlive its client; then all calls fail.
class layer_store {
public:
  layer_store() = default;
  explicit layer_store(std::shared_ptr<stage_set> staged) noexcept
    : staged_(std::move(staged)) {}

  /// Copies one layer of all chunks: one tensor per chunk that was asked for, of the layout's
  /// layer shape. Layers come in any order, each once.
  /// Errors: `invalid_argument`, `layout_mismatch`; `not_reserved` once `commit` was called;
  /// `busy`, `timed_out`, `cancelled`, which also fail the commit.
  call<void> put(size_t layer, std::vector<at::Tensor> kv, const call_options& options = {});

  /// Waits for the puts under way, then publishes all chunks at once.
  /// Errors: `invalid_argument` if a layer is missing, the first error of a put, and as `store`.
  call<store_result> commit(const call_options& options = {}) &&;

  explicit operator bool() const noexcept { return staged_ != nullptr; }

private:
  std::shared_ptr<stage_set> staged_;
};

} // namespace kvasir
