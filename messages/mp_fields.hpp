// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/msgpack_value.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace kvasir::mp {

/// Reads the fields of a map into a struct. The first that is missing or wrong is remembered;
/// what is read after it means nothing.
class field_reader {
public:
  /// @pre `map` outlives the reader
  explicit field_reader(msgpack_value& map) : map_(map) {}

  uint64_t unsigned_in(std::string_view name, uint64_t lowest, uint64_t highest);
  /// `missing` if there is no such field, or it is nil.
  uint64_t unsigned_in(std::string_view name, uint64_t lowest, uint64_t highest,
                       uint64_t missing);
  /// UTF-8.
  std::string text(std::string_view name, size_t longest_bytes);
  bool boolean(std::string_view name);
  /// Of any integer, also a negative one.
  uint64_t bits(std::string_view name);

  /// Takes the numbers out of the map: there may be many.
  std::vector<uint32_t> integers(std::string_view name);

  /// The field, or null, which is an error only if `required`.
  msgpack_value* field(std::string_view name, bool required);

  void refuse(std::string_view name);

  /// `errc::invalid_argument` with the name of the first bad field.
  caf::error error() const;
  explicit operator bool() const noexcept { return bad_.empty(); }

private:
  msgpack_value& map_;
  std::string bad_;
};

} // namespace kvasir::mp
