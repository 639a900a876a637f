// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

/// The checksum of payload bytes: XXH3-64 with seed 0, in the widest vector instructions that
/// this CPU has (chosen at run time on x86). It finds accidents, not forgeries.
namespace kvasir {

/// Of all of `bytes`; also of none. Any thread.
uint64_t checksum(std::span<const std::byte> bytes);

/// The same while copying `from` to `to`, in one pass: each piece is hashed while it is in the
/// core's cache. Any thread.
uint64_t copy_and_checksum(std::byte* to, std::span<const std::byte> from);

/// The same value over pieces, for bytes that arrive one read at a time and are hashed while
/// still in cache. Holds 576 bytes of state on the heap. Threading: one thread at a time.
class checksum_stream {
public:
  checksum_stream();
  ~checksum_stream();
  checksum_stream(checksum_stream&&) noexcept;
  checksum_stream& operator=(checksum_stream&&) noexcept;

  /// Starts over. A new stream needs no reset.
  void reset();

  void update(std::span<const std::byte> bytes);

  /// Equals `checksum` of all bytes since the start or the last reset. May be followed by more
  /// updates.
  uint64_t digest() const;

private:
  struct state;
  std::unique_ptr<state> state_;
};

} // namespace kvasir
