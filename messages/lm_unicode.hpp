// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

/// The little of Unicode that LMCache's keys need, with Python's answers.
///
/// Threading: pure functions. No allocation.
/// Source: CPython 3.11 (Unicode 14): `str.strip`, `str.isdecimal`, strict UTF-8 decoding.
namespace kvasir::lm {

/// Reads the code point at `position` and moves past it.
/// @returns nothing (and leaves `position`) at the end or where Python's strict decoder fails:
/// overlong forms, surrogates, beyond U+10FFFF, cut sequences.
std::optional<char32_t> next_code_point(std::string_view text, size_t& position);

bool is_utf8(std::string_view text);

/// `str.isspace`, i.e. what `str.strip` removes. Includes U+001C..U+001F and U+0085.
bool is_space(char32_t c);

/// `text.strip()`. @pre `is_utf8(text)`
std::string_view strip(std::string_view text);

/// The value of a decimal digit of any script, or -1 (also for superscripts and the like).
int decimal_value(char32_t c);

/// Does valid UTF-8 hold a control character (category Cc: C0, DEL, C1)?
bool has_control(std::string_view text);

} // namespace kvasir::lm
