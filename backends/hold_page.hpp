// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/hold_page_format.hpp"
#include "backends/sealed_memory.hpp"
#include "messages/object.hpp"

#include <caf/expected.hpp>

#include <cstdint>
#include <optional>

namespace kvasir {

/// Says to the owner of the pool which slots this process reads (hazard records) and which
/// objects it found. `object_index_reader` says in which order; the other side is `hold_board`.
///
/// Threading: any thread at any time. Blocking: no call waits. Cost: O(1), but O(512) at most
/// when very much is held. What is published when the process dies ends with it.
class hold_page {
public:
  /// The descriptor stays the caller's. Whoever maps something else than a hold page of this
  /// version is told `errc::invalid_argument`; `errc::io_error` if the system refuses.
  static caf::expected<hold_page> map(int fd);

  /// @returns the record that names the slot from now on, for `withdraw`, or nothing if there is
  /// no free one. One slot may be published more than once.
  std::optional<uint32_t> publish(const slot& where) noexcept;

  /// @pre `record` was published and not withdrawn since. All reads of the slot come before.
  void withdraw(uint32_t record) noexcept;

  /// Tells the eviction policy that the object of this entry was used. The oldest news are lost if
  /// nobody looks at them for long.
  void touch(uint32_t entry) noexcept;

private:
  explicit hold_page(sealed_memory memory);

  bool take(uint32_t record, uint64_t what) noexcept;

  sealed_memory memory_;
  hold_page_format::page* page_;
};

} // namespace kvasir
