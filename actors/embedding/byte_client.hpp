// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_calls.hpp"
#include "actors/embedding/held_prefix.hpp"
#include "actors/embedding/prompt.hpp"
#include "actors/embedding/stage_set.hpp"
#include "actors/embedding/start_call.hpp"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {

/// A client's questions in bytes: what `engine_client` (tensors) and the C interface have in
/// common. Buffers are checked for their size, and calls take their owners along.
///
/// Errors, threads and lifetimes: as of `engine_client`; `layout_mismatch` for a buffer of
/// another size than a chunk (or layer of one), `invalid_argument` for one that is null.
class byte_client {
public:
  explicit byte_client(std::shared_ptr<engine_core> core) noexcept : core_(std::move(core)) {}

  void close() { core_->close(); }

  prompt make_prompt(std::span<const uint32_t> tokens) const;
  caf::expected<prompt> make_prompt(std::span<const uint32_t> tokens, std::string salt) const;

  call<held_prefix> lookup(const prompt& what, const call_options& options) {
    return lookup_as<held_prefix>(what, options, [](held_prefix found) { return found; });
  }

  /// A lookup whose value is what `map` makes of the prefix.
  template <class T, class F>
  call<T> lookup_as(const prompt& what, const call_options& options, F map) {
    if (auto why = check_range(what, 0, 0))
      return call<T>{std::move(why)};
    return start_mapped<lookup_call, T>(
      core_, options,
      [map = std::move(map)](hold_user holds) { return map(held_prefix{std::move(holds)}); },
      what.range(0, what.chunk_count()));
  }

  call<load_result> load(const prompt& what, load_call::target into, size_t first,
                         const call_options& options);
  call<load_result> load(const held_prefix& from, load_call::target into,
                         const call_options& options);
  call<void> load_layer(const held_prefix& from, size_t layer, load_call::target into,
                        const call_options& options);

  call<store_result> store(const prompt& what, store_call::source from, size_t first,
                           const call_options& options);

  /// Reserves, to go on with `put_layer` and `commit_layers`. The value is a `T` that is made of
  /// the `std::shared_ptr<stage_set>`.
  template <class T>
  call<T> stage_as(const prompt& what, size_t first, size_t count,
                   const call_options& options) {
    if (auto why = check_range(what, first, count))
      return call<T>{std::move(why)};
    return start_mapped<stage_call, T>(
      core_, options, [](std::shared_ptr<stage_set> staged) { return T{std::move(staged)}; },
      claim_of(what, first, count));
  }

  call<storage_status> status(const call_options& options);

  const engine_options& options() const noexcept { return core_->options(); }

private:
  caf::error check_range(const prompt& what, size_t first, size_t count) const;
  caf::error check_holder(const held_prefix& from) const;
  reserve_chunks claim_of(const prompt& what, size_t first, size_t count) const;

  std::shared_ptr<engine_core> core_;
};

/// Copies one layer of all staged chunks, one buffer per chunk.
call<void> put_layer(const std::shared_ptr<stage_set>& staged, size_t layer,
                     store_call::source from, const call_options& options);

/// Waits for the puts under way, then publishes.
call<store_result> commit_layers(std::shared_ptr<stage_set> staged,
                                 const call_options& options);

} // namespace kvasir
