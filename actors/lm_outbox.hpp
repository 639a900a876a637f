// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/storage_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace kvasir {

/// Replies on their way out: small ones copied, values straight from their slots, all in as
/// few `sendmsg` calls as the kernel takes.
///
/// Threading: belongs to its connection.
class lm_outbox {
public:
  /// Values that may queue up before the connection stops reading requests.
  static constexpr size_t max_values = 16;
  /// The same for copied bytes.
  static constexpr size_t max_copied_bytes = 64 * 1024;

  enum class result : uint8_t { done, blocked, failed };

  void add(std::span<const std::byte> bytes);

  /// Adds a value; `lease` is reported by `take_sent` once its last byte is out.
  /// @pre the bytes stay valid until then, and there is at least one.
  void add_value(std::span<const std::byte> bytes, lease_id lease);

  bool empty() const noexcept { return values_.empty() && copied_.empty(); }

  /// Should be flushed before more is added.
  bool full() const noexcept {
    return values_.size() >= max_values || copied_.size() >= max_copied_bytes;
  }

  /// Writes to the socket until it takes no more. `sent_bytes` grows by what it took.
  result flush(int fd, uint64_t& sent_bytes);

  /// The lease of a value that is out completely, once each.
  std::optional<lease_id> take_sent();

private:
  struct value {
    size_t copied_before; ///< Bytes of `copied_` that leave before this value.
    std::span<const std::byte> bytes;
    lease_id lease;
  };

  void advance(size_t sent);

  std::vector<std::byte> copied_;
  std::vector<value> values_;
  size_t copied_sent_ = 0;
  size_t value_index_ = 0; ///< The first value that is not out completely.
  size_t value_sent_ = 0;  ///< Bytes of it that are out.
  size_t reported_ = 0;    ///< Values whose leases `take_sent` returned.
};

} // namespace kvasir
