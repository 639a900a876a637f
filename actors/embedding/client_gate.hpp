// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <atomic>
#include <cstdint>

namespace kvasir {

/// Counts the threads that are inside of something, so that who takes it apart can wait until
/// all are out and none comes in any more.
///
/// Threading: any thread. Blocking: `close` waits for those inside, who never block.
class client_gate {
public:
  /// While it lives, what the gate guards stays; false: it was closed before.
  class entry {
  public:
    explicit entry(client_gate& gate) noexcept : gate_(gate.enter() ? &gate : nullptr) {}
    ~entry() {
      if (gate_ != nullptr)
        gate_->leave();
    }
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;
    explicit operator bool() const noexcept { return gate_ != nullptr; }

  private:
    client_gate* gate_;
  };

  /// @pre the calling thread is not inside.
  void close() noexcept {
    auto value = state_.fetch_or(closed) | closed;
    while (value != closed) {
      state_.wait(value);
      value = state_.load();
    }
  }

private:
  static constexpr uint64_t closed = 1;
  static constexpr uint64_t one = 2;

  bool enter() noexcept {
    if ((state_.fetch_add(one) & closed) == 0)
      return true;
    leave();
    return false;
  }

  void leave() noexcept {
    if (state_.fetch_sub(one) == (closed | one))
      state_.notify_all();
  }

  std::atomic<uint64_t> state_{0};
};

} // namespace kvasir
