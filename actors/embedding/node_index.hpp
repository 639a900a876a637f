// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/hold_page.hpp"
#include "backends/object_index_reader.hpp"
#include "messages/storage_messages.hpp"

#include <caf/expected.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvasir {

/// Finds and holds chunks of the joined node without asking it (docs/decisions/0011).
///
/// Holds look like leases of the storage manager, but for a bit in their number: `release` tells
/// them apart.
///
/// Threading: any thread at any time. Blocking: no call waits.
class node_index {
public:
  /// @param pool_bytes what lies beyond is not believed.
  static caf::expected<node_index> map(int index_fd, int page_fd, uint64_t pool_bytes);

  /// Holds as many of the first chunks as are there, each of `chunk_bytes` bytes.
  /// @returns their holds, or nothing if the index can't tell, or there is no room for more holds:
  /// ask the node.
  std::optional<std::vector<read_lease>> hold_prefix(std::span<const index_digest> chunks,
                                                     uint64_t chunk_bytes);

  /// Ends those holds that are of this kind, and takes them out of `leases`.
  void release(std::vector<lease_id>& leases) noexcept;

private:
  enum class outcome : uint8_t { held, missing, unknown };

  node_index(object_index_reader reader, hold_page page, uint64_t pool_bytes) noexcept
    : reader_(std::move(reader)),
      page_(std::move(page)),
      pool_bytes_(pool_bytes) {}

  outcome hold(const index_digest& chunk, uint64_t chunk_bytes, read_lease& result);

  object_index_reader reader_;
  hold_page page_;
  uint64_t pool_bytes_;
};

} // namespace kvasir
