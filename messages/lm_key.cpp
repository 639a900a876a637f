#include "messages/lm_key.hpp"

#include "messages/lm_unicode.hpp"

#include <algorithm>

namespace kvasir::lm {

namespace {

/// Blanks that `int()` skips. Narrower than `is_space`: U+001C..U+001F are missing.
bool is_int_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/// Value of an ASCII digit in either case, or 99.
unsigned digit_value(char c) {
  if (c >= '0' && c <= '9')
    return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f')
    return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F')
    return static_cast<unsigned>(c - 'A') + 10;
  return 99;
}

/// `int()` first writes digits and blanks of other scripts as ASCII ones.
std::optional<std::string> to_ascii(std::string_view text) {
  std::string result;
  for (size_t position = 0; position < text.size();) {
    auto c = next_code_point(text, position);
    if (!c)
      return std::nullopt;
    if (*c < 0x7f)
      result += static_cast<char>(*c);
    else if (is_space(*c))
      result += ' ';
    else if (auto digit = decimal_value(*c); digit >= 0)
      result += static_cast<char>('0' + digit);
    else
      return std::nullopt;
  }
  return result;
}

/// The digits of `text` without leading zeros and underscores, in lower case, "" for zero.
/// An underscore may only stand between two digits.
std::optional<std::string> read_digits(std::string_view text, unsigned base) {
  std::string result;
  bool after_digit = false;
  for (char c : text) {
    if (c == '_') {
      if (!after_digit)
        return std::nullopt;
      after_digit = false;
      continue;
    }
    const auto value = digit_value(c);
    if (value >= base)
      return std::nullopt;
    after_digit = true;
    if (value != 0 || !result.empty())
      result += "0123456789abcdef"[value];
  }
  if (!after_digit) // nothing at all, or a trailing underscore
    return std::nullopt;
  return result;
}

/// `int(text, base)` for base 10 or 16, printed again. @returns nothing where Python raises.
std::optional<std::string> canonical_int(std::string_view text, unsigned base) {
  auto ascii = to_ascii(text);
  if (!ascii)
    return std::nullopt;
  std::string_view rest = *ascii;
  while (!rest.empty() && is_int_space(rest.front()))
    rest.remove_prefix(1);
  while (!rest.empty() && is_int_space(rest.back()))
    rest.remove_suffix(1);
  bool negative = false;
  if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) {
    negative = rest.front() == '-';
    rest.remove_prefix(1);
  }
  if (base == 16 && (rest.starts_with("0x") || rest.starts_with("0X"))) {
    rest.remove_prefix(2);
    if (rest.starts_with('_')) // one is allowed after the prefix
      rest.remove_prefix(1);
  }
  auto digits = read_digits(rest, base);
  if (!digits)
    return std::nullopt;
  if (digits->empty())
    return std::string{"0"};
  if (negative)
    digits->insert(digits->begin(), '-');
  return digits;
}

/// All decimal digits, and at least one. Python asks `isdigit`, which also takes superscripts,
/// and then fails to convert them: to the caller the same as not being a number.
bool is_layer(std::string_view part) {
  if (part.empty())
    return false;
  for (size_t position = 0; position < part.size();) {
    auto c = next_code_point(part, position);
    if (!c || decimal_value(*c) < 0)
      return false;
  }
  return true;
}

/// Cuts off and returns what stands before the next `@`.
std::string_view next_part(std::string_view& rest, bool& more) {
  const auto at = rest.find('@');
  const auto part = rest.substr(0, at);
  more = at != std::string_view::npos;
  rest.remove_prefix(more ? at + 1 : rest.size());
  return part;
}

/// A repeated tag keeps its first place and takes the last value, as in a Python dict.
bool add_tag(std::vector<key_tag>& tags, std::string_view part) {
  const auto percent = part.find('%');
  if (percent == std::string_view::npos)
    return false;
  const auto name = part.substr(0, percent);
  const auto value = part.substr(percent + 1);
  auto found
    = std::find_if(tags.begin(), tags.end(), [&](const auto& x) { return x.name == name; });
  if (found != tags.end())
    found->value = value;
  else
    tags.push_back({std::string{name}, std::string{value}});
  return true;
}

/// `parse_key` for text that is valid UTF-8 without blanks around it.
std::optional<cache_key> parse_stripped(std::string_view rest) {
  cache_key result;
  bool more = true;
  std::string_view parts[5];
  for (auto& part : parts) {
    if (!more)
      return std::nullopt;
    part = next_part(rest, more);
  }
  auto world_size = canonical_int(parts[1], 10);
  auto worker_id = canonical_int(parts[2], 10);
  auto chunk_hash = canonical_int(parts[3], 16);
  if (!world_size || !worker_id || !chunk_hash || !is_key_dtype(parts[4]))
    return std::nullopt;
  result.model = parts[0];
  result.world_size = std::move(*world_size);
  result.worker_id = std::move(*worker_id);
  result.chunk_hash = std::move(*chunk_hash);
  result.dtype = parts[4];
  for (bool first = true; more; first = false) {
    const auto part = next_part(rest, more);
    if (first && is_layer(part))
      result.layer_id = canonical_int(part, 10);
    else if (!add_tag(result.tags, part))
      return std::nullopt;
  }
  return result;
}

// -- the fast path ----------------------------------------------------------------------

bool is_canonical_number(std::string_view text, unsigned base) {
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    if (text == "0")
      return false;
  }
  if (text.empty() || (text[0] == '0' && text.size() > 1))
    return false;
  for (char c : text)
    if (digit_value(c) >= base || (c >= 'A' && c <= 'F'))
      return false;
  return true;
}

/// The kind of a key that is canonical as it stands, ASCII, and has at most one tag; nothing
/// for any other, which only means that the slow path must look at it.
std::optional<key_kind> recognise(std::string_view text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ')
    return std::nullopt;
  bool other = false;
  for (char c : text)
    other |= static_cast<unsigned char>(c - 0x20) > 0x7e - 0x20;
  if (other)
    return std::nullopt;
  bool more = true;
  auto rest = text;
  next_part(rest, more); // the model: anything
  for (unsigned base : {10u, 10u, 16u})
    if (!more || !is_canonical_number(next_part(rest, more), base))
      return std::nullopt;
  if (!more || !is_key_dtype(next_part(rest, more)))
    return std::nullopt;
  if (!more)
    return key_kind::chunk;
  auto kind = key_kind::chunk;
  auto part = next_part(rest, more);
  if (!part.starts_with('-') && is_canonical_number(part, 10)) {
    if (!more)
      return key_kind::layer;
    kind = key_kind::layer;
    part = next_part(rest, more);
  }
  if (more || part.find('%') == std::string_view::npos)
    return std::nullopt;
  return kind;
}

} // namespace

std::optional<cache_key> parse_key(std::string_view text) {
  if (!is_utf8(text))
    return std::nullopt;
  return parse_stripped(strip(text));
}

std::string to_string(const cache_key& key) {
  std::string result = key.model;
  for (const auto* x : {&key.world_size, &key.worker_id, &key.chunk_hash, &key.dtype})
    result.append(1, '@').append(*x);
  if (key.layer_id)
    result.append(1, '@').append(*key.layer_id);
  for (const auto& tag : key.tags)
    result.append(1, '@').append(tag.name).append(1, '%').append(tag.value);
  return result;
}

std::string_view to_string(key_fault fault) {
  switch (fault) {
    case key_fault::none:
      return "none";
    case key_fault::empty:
      return "empty key";
    case key_fault::invalid_utf8:
      return "invalid UTF-8 in key";
    case key_fault::control_character:
      return "control character in key";
    case key_fault::too_long:
      return "key longer than 150 bytes";
  }
  return "unknown";
}

key_result canonical_key_slow(std::string_view text) {
  if (!is_utf8(text))
    return {{}, key_kind::raw, key_fault::invalid_utf8};
  text = strip(text);
  if (text.empty())
    return {{}, key_kind::raw, key_fault::empty};
  if (text.size() > max_key_size)
    return {{}, key_kind::raw, key_fault::too_long};
  key_result result;
  if (auto key = parse_stripped(text)) {
    result.bytes = to_string(*key);
    result.kind = key->layer_id ? key_kind::layer : key_kind::chunk;
  }
  // A value that repetition moved to the end may end in a blank; see the header.
  if (result.bytes.empty() || strip(result.bytes).size() != result.bytes.size()) {
    result.bytes = text;
    result.kind = key_kind::raw;
  }
  if (has_control(result.bytes))
    return {{}, key_kind::raw, key_fault::control_character};
  return result;
}

key_result canonical_key(std::string_view text) {
  if (text.size() <= max_key_size)
    if (auto kind = recognise(text))
      return {std::string{text}, *kind, key_fault::none};
  return canonical_key_slow(text);
}

key_result canonical_key(std::span<const std::byte, max_key_size> field) {
  std::string_view text{reinterpret_cast<const char*>(field.data()), field.size()};
  return canonical_key(text.substr(0, text.find_last_not_of(' ') + 1));
}

} // namespace kvasir::lm
