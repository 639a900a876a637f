// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::example {

class byte_cursor;

/// How a tensor's numbers are stored: the types that `dequantize` knows, by the format's numbers.
enum class gguf_type : uint32_t { f32 = 0, q4_1 = 3, q8_0 = 8 };

/// A tensor inside the file.
struct gguf_tensor {
  std::vector<int64_t> shape; ///< As libtorch orders it: the last dimension is contiguous.
  gguf_type type = gguf_type::f32;
  std::span<const std::byte> data; ///< Exactly what `shape` and `type` need.
};

/// A metadata value, still in the file's bytes: a scalar has `count` 1.
struct gguf_value {
  /// The format's numbers.
  enum value_type : uint32_t {
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    float32,
    boolean,
    text,
    array_of,
    uint64,
    int64,
    float64,
  };

  uint32_t type = 0; ///< Of the scalar, or of an array's elements.
  bool array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;
};

/// A model in GGUF version 3: metadata by name, tensors by name. Every length in the file is
/// compared with what is left of it before it is used; a file that lies is refused by `open`.
///
/// Threading: const functions from several threads at once.
/// Lifetime: texts and data point into the mapped file, and live as long as this. The file must
/// not be made shorter meanwhile (the kernel answers reads behind its end with SIGBUS).
/// Source: ggml's docs/gguf.md.
class gguf_file {
public:
  /// Maps a file and parses it.
  /// @returns also `io_error` if it cannot be opened or mapped.
  static caf::expected<gguf_file> open(const std::filesystem::path& path);

  /// Parses bytes that outlive the result.
  /// @returns `malformed_frame` with what is wrong.
  static caf::expected<gguf_file> parse(std::span<const std::byte> bytes);

  /// All of the file.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// A tensor.
  /// @returns `not_found` if there is none of that name.
  caf::expected<gguf_tensor> tensor(std::string_view name) const;

  bool has_tensor(std::string_view name) const { return tensors_.contains(name); }

  /// @name Metadata
  /// @returns `not_found`, or `malformed_frame` if the value is of another type.
  /// @{
  caf::expected<uint64_t> integer(std::string_view key) const;
  caf::expected<double> number(std::string_view key) const;
  caf::expected<std::string_view> text(std::string_view key) const;
  caf::expected<std::vector<int64_t>> integers(std::string_view key) const;
  caf::expected<std::vector<std::string_view>> texts(std::string_view key) const;
  /// @}

private:
  caf::error parse_metadata(byte_cursor& from, uint64_t count);
  caf::error parse_tensors(byte_cursor& from, uint64_t count);
  caf::expected<gguf_value> value(std::string_view key, bool array) const;

  std::shared_ptr<const void> mapping_; ///< Null if the bytes belong to somebody else.
  std::span<const std::byte> bytes_;
  std::map<std::string_view, gguf_value> metadata_;
  std::map<std::string_view, gguf_tensor> tensors_;
};

} // namespace kvasir::example
