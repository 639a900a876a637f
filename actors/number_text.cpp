#include "actors/number_text.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace kvasir {

namespace {

std::string lower(std::string_view text) {
  std::string result{text};
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

} // namespace

std::optional<uint64_t> parse_size(std::string_view text) {
  struct unit {
    std::string_view name;
    uint64_t bytes;
  };
  constexpr std::array<unit, 14> units{{
    {"", 1},
    {"b", 1},
    {"kb", 1000},
    {"mb", 1000'000},
    {"gb", 1000'000'000},
    {"tb", 1000'000'000'000},
    {"kib", 1ull << 10},
    {"mib", 1ull << 20},
    {"gib", 1ull << 30},
    {"tib", 1ull << 40},
    {"ki", 1ull << 10},
    {"mi", 1ull << 20},
    {"gi", 1ull << 30},
    {"ti", 1ull << 40},
  }};
  auto digits = text.substr(0, text.find_first_not_of("0123456789."));
  auto name = lower(text.substr(digits.size()));
  while (!name.empty() && name.front() == ' ')
    name.erase(0, 1);
  auto found
    = std::find_if(units.begin(), units.end(), [&](const unit& u) { return u.name == name; });
  if (found == units.end())
    return std::nullopt;
  if (auto whole = parse_number<uint64_t>(digits)) {
    if (*whole > std::numeric_limits<uint64_t>::max() / found->bytes)
      return std::nullopt;
    return *whole * found->bytes;
  }
  if (found->bytes == 1) // There is no half byte.
    return std::nullopt;
  auto fraction = parse_number<double>(digits);
  return fraction ? scaled_size(*fraction, found->bytes) : std::nullopt;
}

std::optional<uint64_t> scaled_size(double number, uint64_t unit_bytes) {
  auto bytes = number * static_cast<double>(unit_bytes);
  if (!(bytes >= 0) || bytes >= 18446744073709551616.0)
    return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  auto digits = text.substr(0, text.find_first_not_of("0123456789."));
  auto unit = text.substr(digits.size());
  auto number = parse_number<double>(digits);
  auto factor = unit == "ms"  ? 1.0
                : unit == "s" ? 1000.0
                : unit == "m" ? 60'000.0
                : unit == "h" ? 3'600'000.0
                              : 0.0;
  constexpr double max_ms = 24.0 * 3600 * 1000;
  if (!number || *number * factor < 1 || *number * factor > max_ms)
    return std::nullopt;
  return std::chrono::milliseconds{static_cast<int64_t>(*number * factor)};
}

std::string duration_text(std::chrono::milliseconds duration) {
  return duration.count() % 1000 == 0 ? std::to_string(duration.count() / 1000) + "s"
                                      : std::to_string(duration.count()) + "ms";
}

std::string size_text(uint64_t bytes) {
  for (auto [unit, name] : {std::pair{1ull << 30, "GiB"}, std::pair{1ull << 20, "MiB"}})
    if (bytes > 0 && bytes % unit == 0)
      return std::to_string(bytes / unit) + name;
  return std::to_string(bytes);
}

} // namespace kvasir
