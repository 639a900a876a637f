#include "messages/lm_unicode.hpp"

#include <algorithm>
#include <array>

namespace kvasir::lm {

namespace {

// The code point of each script's digit zero; the nine others follow it. Written by
//   [c for c in map(chr, range(0x110000)) if c.isdecimal() and unicodedata.decimal(c) == 0]
constexpr std::array<char32_t, 66> digit_zeros{
  0x30,    0x660,   0x6f0,   0x7c0,   0x966,   0x9e6,   0xa66,   0xae6,   0xb66,   0xbe6,
  0xc66,   0xce6,   0xd66,   0xde6,   0xe50,   0xed0,   0xf20,   0x1040,  0x1090,  0x17e0,
  0x1810,  0x1946,  0x19d0,  0x1a80,  0x1a90,  0x1b50,  0x1bb0,  0x1c40,  0x1c50,  0xa620,
  0xa8d0,  0xa900,  0xa9d0,  0xa9f0,  0xaa50,  0xabf0,  0xff10,  0x104a0, 0x10d30, 0x11066,
  0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0,
  0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2,
  0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0};
static_assert(std::is_sorted(digit_zeros.begin(), digit_zeros.end()));

bool is_continuation(unsigned char c) {
  return (c & 0xc0) == 0x80;
}

} // namespace

std::optional<char32_t> next_code_point(std::string_view text, size_t& position) {
  auto byte = [&](size_t i) {
    return static_cast<unsigned char>(text[position + i]);
  };
  if (position >= text.size())
    return std::nullopt;
  const unsigned char first = byte(0);
  if (first < 0x80) {
    ++position;
    return first;
  }
  size_t size = 0;
  char32_t result = 0;
  char32_t smallest = 0; // less than that in this many bytes is an overlong form
  if ((first & 0xe0) == 0xc0) {
    size = 2;
    result = first & 0x1f;
    smallest = 0x80;
  } else if ((first & 0xf0) == 0xe0) {
    size = 3;
    result = first & 0x0f;
    smallest = 0x800;
  } else if ((first & 0xf8) == 0xf0) {
    size = 4;
    result = first & 0x07;
    smallest = 0x10000;
  } else {
    return std::nullopt;
  }
  if (text.size() - position < size)
    return std::nullopt;
  for (size_t i = 1; i < size; ++i) {
    if (!is_continuation(byte(i)))
      return std::nullopt;
    result = (result << 6) | (byte(i) & 0x3f);
  }
  if (result < smallest || result > 0x10ffff || (result >= 0xd800 && result <= 0xdfff))
    return std::nullopt;
  position += size;
  return result;
}

bool is_utf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size())
    if (!next_code_point(text, position))
      return false;
  return true;
}

bool is_space(char32_t c) {
  if (c <= 0x20)
    return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028
         || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view strip(std::string_view text) {
  size_t first = 0;
  for (size_t next = 0; next < text.size(); first = next)
    if (auto c = next_code_point(text, next); !c || !is_space(*c))
      break;
  text.remove_prefix(first);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && is_continuation(static_cast<unsigned char>(text[last])))
      --last;
    size_t next = last;
    if (auto c = next_code_point(text, next); !c || !is_space(*c))
      break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

int decimal_value(char32_t c) {
  auto zero = std::upper_bound(digit_zeros.begin(), digit_zeros.end(), c);
  if (zero == digit_zeros.begin())
    return -1;
  const auto value = c - *--zero;
  return value < 10 ? static_cast<int>(value) : -1;
}

bool has_control(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    auto c = next_code_point(text, position);
    if (!c || *c < 0x20 || (*c >= 0x7f && *c <= 0x9f))
      return true;
  }
  return false;
}

} // namespace kvasir::lm
