// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Pickle streams put together by hand, so that any part of a tensor list can be wrong.
namespace pickle_text {

inline std::string le(uint64_t value, size_t size) {
  std::string result;
  for (size_t i = 0; i < size; ++i)
    result += static_cast<char>(value >> (8 * i));
  return result;
}

/// LONG1 of 8 bytes, negative ones too.
inline std::string number(int64_t value) {
  return "\x8a\x08" + le(static_cast<uint64_t>(value), 8);
}

inline std::string tuple(std::initializer_list<int64_t> values) {
  std::string result = "(";
  for (const auto x : values)
    result += number(x);
  return result + 't';
}

inline std::string text(std::string_view value) {
  return 'X' + le(value.size(), 4) + std::string{value};
}

inline std::string bytes(std::string_view value) {
  return 'B' + le(value.size(), 4) + std::string{value};
}

/// torch's legacy format.
struct storage {
  std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  std::string version = "\x80\x02M\xe9\x03.";
  std::string machine = "\x80\x02}" + text("little_endian") + "\x88s.";
  std::string kind = text("storage");
  std::string type = "ctorch\nHalfStorage\n";
  std::string key = text("0");
  std::string location = text("cpu");
  std::string count = number(12);
  std::string view = "N";
  std::string keys = "\x80\x02]" + text("0") + "a.";
  std::string count_again = le(12, 8);
  std::string raw = std::string(24, 'r');

  std::string str() const {
    return magic + version + machine + "\x80\x02(" + kind + type + key + location + count + view
           + "tQ." + keys + count_again + raw;
  }
};

struct tensor {
  std::string rebuild = "ctorch._utils\n_rebuild_tensor_v2\n";
  std::string load = "ctorch.storage\n_load_from_bytes\n";
  std::string bytes = pickle_text::bytes(storage{}.str());
  std::string offset = number(0);
  std::string shape = tuple({2, 1, 2, 3});
  std::string strides = tuple({6, 6, 3, 1});
  std::string gradient = "\x89";
  std::string hooks = "ccollections\nOrderedDict\n)R";
  std::string rest;

  std::string str() const {
    return rebuild + '(' + load + bytes + "\x85R" + offset + shape + strides + gradient + hooks
           + rest + "tR";
  }
};

/// A list of one item.
inline std::string list(std::string_view item) {
  return "\x80\x04]" + std::string{item} + "a.";
}

inline std::span<const std::byte> as_bytes(std::string_view value) {
  return std::as_bytes(std::span{value.data(), value.size()});
}

} // namespace pickle_text
