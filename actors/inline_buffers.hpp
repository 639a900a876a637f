// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/session_messages.hpp"

#include <zmq.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// Memory of inline transfers under way, up to a limit. Replies are large and come one after the
/// other, so their memory is used again while it is warm: touching fresh pages costs more than
/// the copy.
///
/// Threading: any. Lifetime: replies keep it alive until ZeroMQ let go of them.
class inline_buffers : public std::enable_shared_from_this<inline_buffers> {
public:
  explicit inline_buffers(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~inline_buffers();

  /// Takes `bytes` from the limit. What exceeds it by itself may go alone.
  /// @param client whose reply they are for; 0: they are for none. One that does not read its
  /// replies keeps them until its connection ends, and gets half of the limit at most.
  /// @returns false if there is no room now.
  bool take(client_id client, uint64_t bytes);

  /// Gives back what `take` took.
  void give_back(client_id client, uint64_t bytes);

  /// A message of `bytes` bytes whose end gives them back.
  /// @pre they were taken
  /// @returns an empty one if there is no memory; the bytes were given back then.
  zmq::message_t message(client_id client, size_t bytes);

  /// Frees what was not used since the last call.
  void trim();

private:
  struct buffer {
    void* data = nullptr;
    size_t bytes = 0;
    bool idle = false; ///< Not used since the last `trim`.
  };
  struct loan {
    std::shared_ptr<inline_buffers> owner;
    client_id client = 0;
    size_t capacity = 0;
    size_t bytes = 0;
  };

  static constexpr size_t max_spare = 4;
  static void on_sent(void* data, void* hint);
  void end_taking(client_id client, uint64_t bytes);

  const uint64_t limit_bytes_;
  std::mutex mutex_; ///< Guards what follows.
  uint64_t taken_bytes_ = 0;
  std::unordered_map<client_id, uint64_t> taken_by_; ///< For replies; none is 0.
  std::vector<buffer> spare_;
};

} // namespace kvasir
