// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Numbers, sizes and durations as people write them. Threading: pure functions.
namespace kvasir {

/// @returns nothing unless all of `text` is a number that `T` holds.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T result{};
  auto end = text.data() + text.size();
  auto [stopped, failed] = std::from_chars(text.data(), end, result);
  if (failed != std::errc{} || stopped != end)
    return std::nullopt;
  return result;
}

/// "5s", "500ms", "1.5m", "2h". @returns nothing for less than 1 ms, more than a day, or anything
/// else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// In seconds if they are whole, or else in milliseconds; `parse_duration` reads it back.
std::string duration_text(std::chrono::milliseconds duration);

/// "1GiB", "512MiB", "1.5GiB", "4GB" (powers of ten), "4Gi", "4096": bytes.
/// @returns nothing for what is not a size or does not fit 64 bits.
std::optional<uint64_t> parse_size(std::string_view text);

/// @returns nothing if `number` times `unit_bytes` is negative, not a number or too large.
std::optional<uint64_t> scaled_size(double number, uint64_t unit_bytes);

/// The shortest text that `parse_size` reads back exactly: "1GiB", "512MiB", "104857601".
std::string size_text(uint64_t bytes);

} // namespace kvasir
