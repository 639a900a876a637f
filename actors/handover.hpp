// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

/// Tells ThreadSanitizer about hand-overs between threads that it cannot see.
///
/// Debian's libcaf is not instrumented: TSan sees neither its mailboxes nor its scheduler and
/// would report every message as a race. Whoever sends releases the receiver's address, the
/// receiver's handler acquires it and releases it again when it ends. What our code does
/// without such a message in between is still reported (tests/tsan/planted_race.cpp).
///
/// In all other builds the two functions are empty.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace kvasir {

inline void handover_release([[maybe_unused]] const void* address) noexcept {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(address));
#endif
}

inline void handover_acquire([[maybe_unused]] const void* address) noexcept {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(address));
#endif
}

/// Stands at the top of each handler of an actor that I/O units ask.
class handover_scope {
public:
  explicit handover_scope(const void* actor) noexcept : actor_(actor) {
    handover_acquire(actor_);
  }
  ~handover_scope() { handover_release(actor_); }
  handover_scope(const handover_scope&) = delete;
  handover_scope& operator=(const handover_scope&) = delete;

private:
  const void* actor_;
};

} // namespace kvasir
