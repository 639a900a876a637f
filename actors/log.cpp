#include "actors/log.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace kvasir::log {

namespace {

constexpr uint32_t max_limited_per_second = 10;
constexpr size_t max_remembered_messages = 1024;

std::atomic<level> lowest_level{level::info};
std::atomic<format> line_format{format::text};

std::string_view name_of(level value) {
  switch (value) {
    case level::debug:
      return "debug";
    case level::info:
      return "info";
    case level::warn:
      return "warn";
    case level::error:
      return "error";
    case level::off:
      return "off";
  }
  return "unknown";
}

std::unique_ptr<spdlog::formatter> formatter_for(format how) {
  auto pattern = how == format::json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ",%v})"
                                     : "%Y-%m-%dT%H:%M:%S.%eZ %v";
  return std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc);
}

/// Built at the first use, and never destroyed: events may be written until the process ends.
spdlog::logger& logger() {
  static auto* const instance = [] {
    auto made = new spdlog::logger{"kvasir", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
    made->set_level(spdlog::level::trace); // `write` filters.
    made->set_formatter(formatter_for(line_format));
    return made;
  }();
  return *instance;
}

/// As a JSON string. Bytes that are no UTF-8 become U+FFFD.
std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Peers choose some values, so none may look like another field or line.
std::string text_value(std::string_view text) {
  auto plain = [](char c) {
    return c > ' ' && c != '"' && c != '=' && c != '\\' && c != 0x7f;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain))
    return std::string{text};
  return json_string(text);
}

std::string text_line(level severity, std::string_view message,
                      std::initializer_list<field> fields, uint64_t suppressed) {
  std::string line{name_of(severity)};
  line.append(" ").append(message);
  for (const auto& f : fields)
    line.append(" ").append(f.name).append("=").append(text_value(f.value));
  if (suppressed > 0)
    line.append(" suppressed=").append(std::to_string(suppressed));
  return line;
}

std::string json_members(level severity, std::string_view message,
                         std::initializer_list<field> fields, uint64_t suppressed) {
  std::string members = R"("level":)" + json_string(name_of(severity));
  members.append(R"(,"message":)").append(json_string(message));
  for (const auto& f : fields)
    members.append(",").append(json_string(f.name)).append(":").append(json_string(f.value));
  if (suppressed > 0)
    members.append(R"(,"suppressed":)").append(std::to_string(suppressed));
  return members;
}

void write_line(level severity, std::string_view message, std::initializer_list<field> fields,
                uint64_t suppressed) {
  auto line = line_format.load() == format::json
                ? json_members(severity, message, fields, suppressed)
                : text_line(severity, message, fields, suppressed);
  logger().log(spdlog::level::info, spdlog::string_view_t{line.data(), line.size()});
}

bool written(level severity) {
  return severity >= lowest_level.load() && severity != level::off;
}

/// Counts what `write_limited` let pass, per message and second.
class limiter {
public:
  /// @returns how many of this message were left out before this one, or nothing if this one
  /// is left out, too.
  std::optional<uint64_t> admit(std::string_view message) {
    auto now = std::chrono::steady_clock::now();
    std::lock_guard guard{mutex_};
    auto found = windows_.find(message);
    if (found == windows_.end()) {
      if (windows_.size() >= max_remembered_messages)
        windows_.clear();
      found = windows_.emplace(message, window{now}).first;
    }
    auto& seen = found->second;
    if (now - seen.start >= std::chrono::seconds{1}) {
      seen.start = now;
      seen.written = 0;
    }
    if (seen.written >= max_limited_per_second) {
      ++seen.suppressed;
      return std::nullopt;
    }
    ++seen.written;
    return std::exchange(seen.suppressed, 0);
  }

private:
  struct window {
    std::chrono::steady_clock::time_point start;
    uint32_t written = 0;
    uint64_t suppressed = 0;
  };

  std::mutex mutex_;
  std::map<std::string, window, std::less<>> windows_;
};

} // namespace

void configure(level lowest, format how) {
  lowest_level = lowest;
  line_format = how;
  logger().set_formatter(formatter_for(how));
}

void write(level severity, std::string_view message, std::initializer_list<field> fields) {
  if (written(severity))
    write_line(severity, message, fields, 0);
}

void write_limited(level severity, std::string_view message,
                   std::initializer_list<field> fields) {
  static auto* const limits = new limiter;
  if (!written(severity))
    return;
  if (auto suppressed = limits->admit(message))
    write_line(severity, message, fields, *suppressed);
}

bool parse(std::string_view text, level& result) {
  for (auto value : {level::debug, level::info, level::warn, level::error, level::off}) {
    if (text == name_of(value)) {
      result = value;
      return true;
    }
  }
  return false;
}

bool parse(std::string_view text, format& result) {
  if (text != "text" && text != "json")
    return false;
  result = text == "json" ? format::json : format::text;
  return true;
}

std::string_view to_string(level value) {
  return name_of(value);
}

std::string_view to_string(format value) {
  return value == format::json ? "json" : "text";
}

} // namespace kvasir::log
