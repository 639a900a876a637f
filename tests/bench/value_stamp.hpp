#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace kvasir::bench {

/// Who stored a value, and when: stands at both ends of it, so that a value of an earlier run, of
/// another client, or torn, is recognised without comparing every byte.
struct value_stamp {
  std::uint64_t nonce; ///< of the run
  std::uint32_t client_index;
  std::uint32_t key_index;
  std::uint64_t version;

  /// @pre `value.size() >= 2 * sizeof(value_stamp)`
  void write_to(std::span<char> value) const {
    std::memcpy(value.data(), this, sizeof *this);
    std::memcpy(value.data() + value.size() - sizeof *this, this, sizeof *this);
  }

  /// @pre as `write_to`
  bool is_in(std::span<const char> value) const {
    return std::memcmp(value.data(), this, sizeof *this) == 0
           && std::memcmp(value.data() + value.size() - sizeof *this, this, sizeof *this) == 0;
  }
};

static_assert(sizeof(value_stamp) == 24, "no padding that memcmp would compare");

} // namespace kvasir::bench
