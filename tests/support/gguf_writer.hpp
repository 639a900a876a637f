// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "examples/engine/gguf_file.hpp"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::test {

/// Writes small GGUF files, right ones and wrong ones. Values and tensors are counted as they come.
class gguf_writer {
public:
  template <class Number>
  static std::string bytes_of(Number number) {
    return {reinterpret_cast<const char*>(&number), sizeof number};
  }
  static std::string bytes_of(std::string_view text) {
    return bytes_of(uint64_t{text.size()}) + std::string{text};
  }

  /// A value of any type, as its bytes.
  gguf_writer& value(std::string_view key, uint32_t type, const std::string& bytes) {
    values_ += bytes_of(key) + bytes_of(type) + bytes;
    ++value_count_;
    return *this;
  }
  gguf_writer& text(std::string_view key, std::string_view what) {
    return value(key, 8, bytes_of(what));
  }
  gguf_writer& integer(std::string_view key, uint32_t what) {
    return value(key, 4, bytes_of(what));
  }
  gguf_writer& texts(std::string_view key, const std::vector<std::string>& what) {
    auto bytes = bytes_of(uint32_t{8}) + bytes_of(uint64_t{what.size()});
    for (auto& each : what)
      bytes += bytes_of(std::string_view{each});
    return value(key, 9, bytes);
  }
  gguf_writer& integers(std::string_view key, const std::vector<int32_t>& what) {
    auto bytes = bytes_of(uint32_t{5}) + bytes_of(uint64_t{what.size()});
    for (auto each : what)
      bytes += bytes_of(each);
    return value(key, 9, bytes);
  }

  /// `sizes` as in the file: the contiguous dimension first.
  gguf_writer& tensor(std::string_view name, std::initializer_list<uint64_t> sizes,
                      uint32_t type, const std::string& data) {
    tensors_ += bytes_of(name) + bytes_of(static_cast<uint32_t>(sizes.size()));
    for (auto size : sizes)
      tensors_ += bytes_of(size);
    tensors_ += bytes_of(type) + bytes_of(uint64_t{data_.size()});
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
    return *this;
  }

  std::string file() const {
    auto result = "GGUF" + bytes_of(uint32_t{3}) + bytes_of(tensor_count_)
                  + bytes_of(value_count_) + values_ + tensors_;
    result.resize((result.size() + 31) / 32 * 32);
    return result + data_;
  }

private:
  uint64_t value_count_ = 0;
  uint64_t tensor_count_ = 0;
  std::string values_;
  std::string tensors_;
  std::string data_;
};

inline std::span<const std::byte> bytes_over(const std::string& file) {
  return std::as_bytes(std::span{file});
}

} // namespace kvasir::test
