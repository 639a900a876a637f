// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/byte_client.hpp"
#include "actors/embedding/call.hpp"
#include "actors/embedding/engine_calls.hpp"
#include "actors/embedding/engine_options.hpp"
#include "actors/embedding/held_prefix.hpp"
#include "actors/embedding/layer_store.hpp"
#include "actors/embedding/prompt.hpp"
#include "messages/configure.hpp"

#include <caf/expected.hpp>
#include <caf/fwd.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace kvasir {

/// The KV cache inside an engine: tensors in, tensors out, hits without a copy
/// (docs/embedding.md). Whoever calls more than names of it includes <ATen/core/Tensor.h>.
///
/// Chunks are contiguous CPU tensors of the registered layout: [2, layers, slots, hidden], or
/// [layers, slots, hidden] if it is `single_plane`. A call takes its tensors along and neither
/// reads nor writes them once it has ended.
///
/// Every call ends once. Errors of all: `invalid_argument` (the text says what), `timed_out`,
/// `cancelled`, `busy` if too many wait.
///
/// Threading: all functions from any thread at once, but for the destructor.
/// Blocking: no call waits for another thread; copies of up to `max_inline_copy_bytes` are done
/// by the caller. `open` takes milliseconds, `close` until copies under way stopped.
class engine_client {
public:
  /// Starts a client with a pool and an actor system of its own.
  /// @returns it, or `invalid_argument`, `too_large`, or `io_error` or `out_of_memory` if the
  /// pool cannot be had.
  static caf::expected<std::unique_ptr<engine_client>> open(const engine_options& options);

  /// The same on an engine's actor system, which ends later than the client.
  /// @returns also `invalid_argument` if `kvasir::configure` was not called on the system's
  /// configuration before the system was made.
  static caf::expected<std::unique_ptr<engine_client>> open(const engine_options& options,
                                                            caf::actor_system& lent);

  /// Closes.
  ~engine_client();
  engine_client(const engine_client&) = delete;
  engine_client& operator=(const engine_client&) = delete;

  /// Ends all calls under way with `cancelled`; later ones fail at once. Tensors and results live
  /// on. In a continuation it returns before all has ended. Idempotent.
  void close();

  /// Names the chunks of a prompt, to be used for many calls.
  prompt make_prompt(std::span<const uint32_t> tokens) const;

  /// The same for a tenant (cache salt), whose chunks nobody else finds.
  /// @returns the prompt, or `invalid_argument` if the salt exceeds 128 bytes.
  caf::expected<prompt> make_prompt(std::span<const uint32_t> tokens, std::string salt) const;

  /// Holds the longest prefix that is there, possibly none.
  call<held_prefix> lookup(const prompt& what, const call_options& options = {});
  call<held_prefix> lookup(std::span<const uint32_t> tokens, const call_options& options = {}) {
    return lookup(make_prompt(tokens), options);
  }

  /// Stores chunks `first`, `first + 1`, ... of the prompt: those that are neither resident nor
  /// being stored, as far as there is room.
  /// Errors: `layout_mismatch` for a tensor of another dtype or shape.
  call<store_result> store(const prompt& what, std::vector<at::Tensor> kv, size_t first = 0,
                           const call_options& options = {});
  call<store_result> store(std::span<const uint32_t> tokens, std::vector<at::Tensor> kv);

  /// Copies chunks `first`, `first + 1`, ... into the tensors, as many as are there without a
  /// gap. What lies in the other tensors is unspecified.
  /// Errors: as `store`.
  call<load_result> load(const prompt& what, std::vector<at::Tensor> into, size_t first = 0,
                         const call_options& options = {});
  call<load_result> load(std::span<const uint32_t> tokens, std::vector<at::Tensor> into);

  /// The same from what a lookup holds, which may end meanwhile.
  call<load_result> load(const held_prefix& from, std::vector<at::Tensor> into,
                         const call_options& options = {});

  /// One layer of all held chunks: one tensor per chunk, [2, slots, hidden], or [slots, hidden]
  /// if the layout is `single_plane`. The bytes are not compared with their checksum.
  /// Errors: as `store`, and `invalid_argument` for another number of tensors.
  call<void> load_layer(const held_prefix& from, size_t layer, std::vector<at::Tensor> into,
                        const call_options& options = {});

  /// Reserves chunks `[first, first + count)` of the prompt, to be stored layer by layer.
  call<layer_store> begin_store(const prompt& what, size_t first, size_t count,
                                const call_options& options = {});

  /// A lookup's `held_prefix::view`: a tensor per chunk, over the cache's own memory. They must not
  /// be written. Each holds its chunk, and the pool's memory, for as long as its storage lives.
  call<std::vector<at::Tensor>> view(const prompt& what, const call_options& options = {});
  call<std::vector<at::Tensor>> view(std::span<const uint32_t> tokens,
                                     const call_options& options = {});

  /// The storage manager's gauges and counters.
  call<storage_status> status(const call_options& options = {});

  const engine_options& options() const noexcept { return bytes_.options(); }

private:
  explicit engine_client(std::shared_ptr<engine_core> core) noexcept
    : bytes_(std::move(core)) {}

  byte_client bytes_;
};

} // namespace kvasir
