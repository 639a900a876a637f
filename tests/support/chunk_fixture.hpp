// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "support/storage_fixture.hpp"

#include <string>
#include <vector>

namespace kvasir::test {

/// Chunk `number` of the prompt called `prompt`.
inline object_key chunk_key(const std::string& prompt, uint64_t number) {
  return {std::string(1, '\0') + prompt + "#" + std::to_string(number)};
}

/// A storage manager and what an engine asks of it, in chunks of one page.
class chunk_fixture : public storage_fixture {
public:
  chunk_fixture() = default;
  explicit chunk_fixture(const setup& how) : storage_fixture(how) {}

  static std::vector<object_key> keys_of(const std::string& prompt, uint64_t first,
                                         uint64_t last) {
    std::vector<object_key> result;
    for (auto i = first; i < last; ++i)
      result.push_back(chunk_key(prompt, i));
    return result;
  }

  static reserve_chunks claim_of(owner_id owner, const std::string& prompt, uint64_t first,
                                 uint64_t last, const std::string& tenant = {}) {
    reserve_chunks result{owner, tenant, {}, page, {}};
    for (auto i = first; i < last; ++i)
      result.chunks.push_back(
        {chunk_key(prompt, i), i == 0 ? object_key{} : chunk_key(prompt, i - 1)});
    return result;
  }

  std::vector<chunk_reservation> stage(owner_id owner, const std::string& prompt,
                                       uint64_t first, uint64_t last,
                                       const std::string& tenant = {}) {
    auto result = ask<chunk_reservations>(claim_of(owner, prompt, first, last, tenant));
    REQUIRE(result);
    REQUIRE(result->chunks.size() == last - first);
    return result->chunks;
  }

  std::vector<chunk_state> states(owner_id owner, const std::string& prompt, uint64_t first,
                                  uint64_t last) {
    std::vector<chunk_state> result;
    for (auto& chunk : stage(owner, prompt, first, last))
      result.push_back(chunk.state);
    return result;
  }

  static std::vector<finish_write> writes_of(const std::vector<chunk_reservation>& staged) {
    std::vector<finish_write> result;
    for (auto& chunk : staged)
      if (chunk.state == chunk_state::reserved)
        result.push_back({chunk.lease.id, 7});
    return result;
  }

  static std::vector<lease_id> ids_of(const std::vector<chunk_reservation>& staged) {
    std::vector<lease_id> result;
    for (auto& write : writes_of(staged))
      result.push_back(write.id);
    return result;
  }

  /// Stages and publishes. @returns how many chunks were resident afterwards.
  uint64_t store_prompt(const std::string& prompt, uint64_t first, uint64_t last,
                        const std::string& tenant = {}) {
    auto writes = writes_of(stage(writer, prompt, first, last, tenant));
    auto done
      = ask<chunks_finished>(finish_chunks{std::move(writes), 0, keys_of(prompt, first, last)});
    REQUIRE(done);
    uint64_t result = 0;
    for (auto here : done->resident)
      result += here;
    return result;
  }

  prefix_held look_up(owner_id owner, const std::string& prompt, uint64_t chunks) {
    auto result = ask<prefix_held>(hold_prefix{owner, 1, keys_of(prompt, 0, chunks)});
    REQUIRE(result);
    REQUIRE(result->leases.size() == result->chunks);
    return *result;
  }

  caf::expected<chunks_acquired> acquire_all(owner_id owner, const std::string& prompt,
                                             uint64_t first, uint64_t last) {
    return ask<chunks_acquired>(acquire_chunks{owner, keys_of(prompt, first, last)});
  }

  /// The numbers of those chunks below `count` that are resident.
  std::vector<uint64_t> resident(const std::string& prompt, uint64_t count) {
    std::vector<uint64_t> result;
    for (uint64_t i = 0; i < count; ++i)
      if (tier().present(chunk_key(prompt, i)))
        result.push_back(i);
    return result;
  }
};

} // namespace kvasir::test
