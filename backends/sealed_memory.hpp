// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>

namespace kvasir {

/// Memory that this process shares by a file descriptor, without a name (memfd): gone with its last
/// descriptor and mapping. Its size is sealed, so that nobody who has it can make us die of
/// SIGBUS by truncating it. Pages take memory once they are written.
///
/// Threading: as plain memory. Blocking: no call waits. Errors carry the name of what failed.
class sealed_memory {
public:
  enum class access : uint8_t {
    ours,   ///< Only the mapping made by `create` can write, whoever gets the descriptor.
    shared, ///< Whoever gets the descriptor may write.
  };

  /// New memory, mapped writable here, all zero. `name` shows in /proc only.
  /// @returns `errc::io_error` if the system refuses.
  static caf::expected<sealed_memory> create(const char* name, uint64_t size_bytes,
                                             access others);

  /// Maps what another process created. The descriptor stays the caller's.
  /// @returns `errc::invalid_argument` if its size may change or it has less than
  /// `least_bytes`, `errc::io_error` if the system refuses.
  static caf::expected<sealed_memory> map(int fd, bool writable, uint64_t least_bytes);

  sealed_memory() = default;
  sealed_memory(sealed_memory&& other) noexcept;
  sealed_memory& operator=(sealed_memory&& other) noexcept;
  ~sealed_memory();

  std::byte* data() const noexcept { return data_; }
  uint64_t size_bytes() const noexcept { return size_bytes_; }

  /// For other processes (sent over a socket); lives as long as this. -1 if it was mapped. With
  /// `access::ours` it is opened for reading.
  int fd() const noexcept { return fd_; }

private:
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  int fd_ = -1;
};

} // namespace kvasir
