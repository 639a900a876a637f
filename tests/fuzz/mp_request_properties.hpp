// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/lm_unicode.hpp"
#include "wire/mp_wire.hpp"

#include <algorithm>
#include <cmath>

namespace kvasir::mp::properties {

/// The number of an operation, then its arguments: two bytes of length (little-endian) each.
struct framed_request {
  operation what;
  wire::frames arguments;
};

inline framed_request unframe(std::span<const std::byte> bytes) {
  auto at = [&](size_t i) {
    return std::to_integer<size_t>(bytes[i]);
  };
  framed_request result{operation::noop, {}};
  if (bytes.empty())
    return result;
  result.what = static_cast<operation>(at(0));
  for (size_t i = 1; i + 2 <= bytes.size();) {
    const auto size = std::min(at(i) | at(i + 1) << 8, bytes.size() - i - 2);
    const auto* data = reinterpret_cast<const char*>(bytes.data()) + i + 2;
    result.arguments.emplace_back(data, size);
    i += 2 + size;
  }
  return result;
}

/// A key that parses keeps its rules.
inline const char* check_key_rules(const cache_key& key) {
  if (key.model_name.empty() || key.model_name.find('@') != std::string::npos)
    return "a model name outside its rules";
  if (key.world_size < 1 || key.world_size > 255
      || (key.worker_id && *key.worker_id >= key.world_size))
    return "a rank outside its world";
  if (key.num_kv_readers > 128)
    return "too many readers";
  if (key.cache_salt.find_first_of(std::string_view{"@/\\\0", 4}) != std::string::npos)
    return "a salt with a separator";
  if (!lm::is_utf8(key.model_name) || !lm::is_utf8(key.request_id)
      || !lm::is_utf8(key.cache_salt))
    return "a name that is not UTF-8";
  return nullptr;
}

/// A request is refused with a documented error, or keeps its rules and reads the same after
/// writing. An operation frame never does more than name an operation.
inline const char* check_request(std::span<const std::byte> bytes) {
  const auto name = parse_operation(bytes);
  if (name ? to_string(*name) == "unknown"
           : name.error() != errc::not_found && name.error() != errc::malformed_frame)
    return "an operation without a name, or another error than promised";
  const auto [what, arguments] = unframe(bytes);
  const auto parsed = wire::parse(what, arguments);
  if (!parsed)
    return parsed.error() == errc::not_found || parsed.error() == errc::malformed_frame
               || parsed.error() == errc::invalid_argument
             ? nullptr
             : "another error than promised";
  const char* broken = std::visit(
    [](const auto& r) -> const char* {
      if constexpr (requires { r.key; })
        return check_key_rules(r.key);
      else if constexpr (requires { r.timeout_seconds; })
        return !std::isfinite(r.timeout_seconds) ? "a timeout without end"
               : lm::is_utf8(r.request_id)       ? nullptr
                                                 : "a request that is not UTF-8";
      else if constexpr (requires { r.request_id; })
        return lm::is_utf8(r.request_id) ? nullptr : "a request that is not UTF-8";
      else if constexpr (requires { r.model_name; })
        return lm::is_utf8(r.model_name) ? nullptr : "a model that is not UTF-8";
      else
        return nullptr;
    },
    *parsed);
  if (broken != nullptr)
    return broken;
  const auto written = wire::argument_frames(*parsed);
  const auto again = wire::parse(what, written);
  if (!again)
    return "a good request cannot be written";
  if (again->index() != parsed->index() || wire::argument_frames(*again) != written)
    return "a request reads differently after writing";
  return nullptr;
}

} // namespace kvasir::mp::properties
