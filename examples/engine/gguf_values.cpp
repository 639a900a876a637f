#include "examples/engine/byte_cursor.hpp"
#include "examples/engine/gguf_file.hpp"

#include <limits>
#include <optional>

namespace kvasir::example {

namespace {

/// One number of any integer type; none if it is of another type, or exceeds int64_t.
std::optional<int64_t> read_integer(byte_cursor& from, uint32_t type) {
  switch (type) {
    case gguf_value::uint8:
      return from.number<uint8_t>();
    case gguf_value::int8:
      return from.number<int8_t>();
    case gguf_value::uint16:
      return from.number<uint16_t>();
    case gguf_value::int16:
      return from.number<int16_t>();
    case gguf_value::uint32:
      return from.number<uint32_t>();
    case gguf_value::int32:
      return from.number<int32_t>();
    case gguf_value::int64:
      return from.number<int64_t>();
    case gguf_value::uint64:
      if (auto result = from.number<uint64_t>(); result <= std::numeric_limits<int64_t>::max())
        return static_cast<int64_t>(result);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

caf::error missing(std::string_view what, std::string_view name) {
  return caf::make_error(errc::not_found,
                         "the GGUF file has no " + std::string{what} + " " + std::string{name});
}

caf::error unexpected_type(std::string_view key) {
  return caf::make_error(errc::malformed_frame,
                         "the GGUF file's " + std::string{key} + " is of an unexpected type");
}

} // namespace

caf::expected<gguf_tensor> gguf_file::tensor(std::string_view name) const {
  auto found = tensors_.find(name);
  if (found == tensors_.end())
    return missing("tensor", name);
  return found->second;
}

caf::expected<gguf_value> gguf_file::value(std::string_view key, bool array) const {
  auto found = metadata_.find(key);
  if (found == metadata_.end())
    return missing("metadata", key);
  if (found->second.array != array)
    return unexpected_type(key);
  return found->second;
}

caf::expected<uint64_t> gguf_file::integer(std::string_view key) const {
  auto found = value(key, false);
  if (!found)
    return std::move(found.error());
  byte_cursor from{found->bytes};
  auto result = read_integer(from, found->type);
  if (!result || *result < 0)
    return unexpected_type(key);
  return static_cast<uint64_t>(*result);
}

caf::expected<double> gguf_file::number(std::string_view key) const {
  auto found = value(key, false);
  if (!found)
    return std::move(found.error());
  byte_cursor from{found->bytes};
  if (found->type == gguf_value::float32)
    return from.number<float>();
  if (found->type == gguf_value::float64)
    return from.number<double>();
  return unexpected_type(key);
}

caf::expected<std::string_view> gguf_file::text(std::string_view key) const {
  auto found = value(key, false);
  if (!found)
    return std::move(found.error());
  if (found->type != gguf_value::text)
    return unexpected_type(key);
  return byte_cursor{found->bytes}.text();
}

caf::expected<std::vector<int64_t>> gguf_file::integers(std::string_view key) const {
  auto found = value(key, true);
  if (!found)
    return std::move(found.error());
  byte_cursor from{found->bytes};
  std::vector<int64_t> result;
  for (uint64_t i = 0; i < found->count; ++i) {
    auto next = read_integer(from, found->type);
    if (!next)
      return unexpected_type(key);
    result.push_back(*next);
  }
  return result;
}

caf::expected<std::vector<std::string_view>> gguf_file::texts(std::string_view key) const {
  auto found = value(key, true);
  if (!found)
    return std::move(found.error());
  if (found->type != gguf_value::text)
    return unexpected_type(key);
  byte_cursor from{found->bytes};
  std::vector<std::string_view> result;
  for (uint64_t i = 0; i < found->count; ++i)
    result.push_back(from.text());
  return result;
}

} // namespace kvasir::example
