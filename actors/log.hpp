// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

/// The process's log on standard error: one line per event, a sentence and named fields, as
/// text or JSON. Log an error once, where it is handled.
///
/// Threading: any thread. Blocking: writes the line before it returns.
namespace kvasir::log {

enum class level : uint8_t { debug, info, warn, error, off };
enum class format : uint8_t { text, json };

struct field {
  std::string_view name;
  std::string value;
};

/// Sets the lowest level that is written and how. Before the first call: info, text.
void configure(level lowest, format how);

/// Writes one event. Events that untrusted peers can cause at will pass `limited`: of each
/// message at most ten a second are written, the next one says how many were left out.
void write(level severity, std::string_view message, std::initializer_list<field> fields = {});
void write_limited(level severity, std::string_view message,
                   std::initializer_list<field> fields = {});

/// Names as on the command line. @returns false for an unknown one.
bool parse(std::string_view text, level& result);
bool parse(std::string_view text, format& result);

/// The inverse of `parse`.
std::string_view to_string(level value);
std::string_view to_string(format value);

} // namespace kvasir::log
