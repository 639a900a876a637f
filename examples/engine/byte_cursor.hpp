// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace kvasir::example {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

/// Reads untrusted bytes from front to back. The first read behind the end fails this for good:
/// it and all later ones give zeros and nothing, so that a caller may look at `ok` once per step.
class byte_cursor {
public:
  explicit byte_cursor(std::span<const std::byte> rest) noexcept : rest_(rest) {}

  bool ok() const noexcept { return ok_; }
  std::span<const std::byte> rest() const noexcept { return rest_; }

  std::span<const std::byte> take(uint64_t size) noexcept {
    if (size > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  /// `count` items of `size` bytes, whose product may be anything.
  std::span<const std::byte> take_array(uint64_t count, uint64_t size) noexcept {
    return take(size != 0 && count > rest_.size() / size ? UINT64_MAX : count * size);
  }

  template <class Number>
  Number number() noexcept {
    Number result{};
    if (auto from = take(sizeof(Number)); !from.empty())
      std::memcpy(&result, from.data(), sizeof(Number));
    return result;
  }

  /// A text with its length before it.
  std::string_view text() noexcept {
    auto bytes = take(number<uint64_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

} // namespace kvasir::example
