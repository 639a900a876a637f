// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/actor_control_block.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <vector>

namespace kvasir {

class operation;

/// The calls of a client that wait for something: for their deadlines, and to end them when the
/// client is closed. Most calls are answered at once and are never in it.
///
/// Threading: any thread. Calls are aborted without the lock.
class pending_calls {
public:
  using clock = std::chrono::steady_clock;

  explicit pending_calls(size_t limit) : limit_(limit) {}

  enum class added : uint8_t { yes, first, refused };

  /// `first`: there was none before; `refused`: too many.
  added add(operation& what);

  /// Nothing if it is not there.
  void remove(operation& what);

  /// Ends those whose deadline passed. @returns false if none is left.
  bool expire(clock::time_point now);

  void abort_all(errc why);

  size_t size() const;

private:
  const size_t limit_;
  mutable std::mutex mutex_;
  std::vector<caf::strong_actor_ptr> calls_; ///< Each knows its place.
};

} // namespace kvasir
