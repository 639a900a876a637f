// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>

namespace kvasir {

/// The pool of the node that an engine joined, mapped into this process. A child process does not
/// inherit it: the node knows of this one only.
///
/// Threading: any.
class joined_pool {
public:
  /// @returns it, or `io_error` if the kernel refuses or the segment is not of this size.
  static caf::expected<joined_pool> map(int fd, uint64_t size_bytes);

  joined_pool() = default;
  joined_pool(joined_pool&& other) noexcept;
  joined_pool& operator=(joined_pool&& other) noexcept;
  ~joined_pool();

  std::byte* data() const noexcept { return data_; }
  uint64_t size_bytes() const noexcept { return size_bytes_; }

private:
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

} // namespace kvasir
