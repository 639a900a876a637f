// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Reading of golden data: JSON files with bytes as hexadecimal digits. Throws on a broken
/// file, which ends the test case.
namespace golden {

inline nlohmann::json load(const std::string& name) {
  std::ifstream file{KVASIR_GOLDEN_DIR "/" + name};
  if (!file)
    throw std::runtime_error("cannot open " + name);
  return nlohmann::json::parse(file);
}

/// One list of a file, by value so that a range-for may hold it.
inline nlohmann::json vectors(const std::string& name, const char* list = "vectors") {
  return load(name).at(list);
}

inline std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> result;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    result.push_back(
      static_cast<std::byte>(std::stoul(std::string{hex.substr(i, 2)}, nullptr, 16)));
  return result;
}

/// Exactly `Size` bytes.
template <size_t Size>
std::array<std::byte, Size> array_from_hex(std::string_view hex) {
  auto bytes = from_hex(hex);
  if (bytes.size() != Size)
    throw std::runtime_error("wrong number of bytes");
  std::array<std::byte, Size> result;
  std::copy(bytes.begin(), bytes.end(), result.begin());
  return result;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

/// A key as it lies in a request header.
inline std::array<std::byte, 150> key_field(std::string_view text, char pad = ' ') {
  std::array<std::byte, 150> result;
  result.fill(static_cast<std::byte>(pad));
  auto bytes = as_bytes(text.substr(0, result.size()));
  std::copy(bytes.begin(), bytes.end(), result.begin());
  return result;
}

} // namespace golden
