#include "messages/lm_remote_metadata.hpp"

#include "messages/lm_tables.hpp"

#include <bit>
#include <cstring>
#include <string>

namespace kvasir::lm {

namespace {

static_assert(std::endian::native == std::endian::little, "integers are copied as they are");

constexpr size_t ints_per_group = 5;

caf::error fail(errc code, const char* field) {
  return caf::make_error(code, std::string{field});
}

/// The name of the first field outside its table, or nullptr.
const char* first_unknown(const remote_metadata& metadata) {
  if (metadata.length < 0)
    return "length";
  if (!is_memory_format(metadata.format))
    return "fmt";
  for (const auto& group : metadata.groups)
    if (!normalise_dtype(group.dtype))
      return "dtype";
  return nullptr;
}

} // namespace

caf::expected<remote_metadata> parse_remote_metadata(std::span<const std::byte> bytes,
                                                     size_t group_count) {
  if (group_count == 0 || group_count > max_group_count)
    return fail(errc::invalid_argument, "group_count");
  if (bytes.size() != remote_metadata_size(group_count))
    return fail(errc::malformed_frame, "size");
  auto int_at = [&](size_t index) {
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
    return value;
  };
  remote_metadata result;
  result.length = int_at(0);
  result.format = int_at(1);
  result.groups.resize(group_count);
  for (size_t i = 0; i < group_count; ++i) {
    const auto first = 2 + i * ints_per_group;
    result.groups[i].dtype = int_at(first);
    for (size_t dim = 0; dim < 4; ++dim)
      result.groups[i].shape[dim] = int_at(first + 1 + dim);
  }
  if (auto field = first_unknown(result))
    return fail(errc::malformed_frame, field);
  for (auto& group : result.groups)
    group.dtype = *normalise_dtype(group.dtype);
  return result;
}

caf::expected<std::vector<std::byte>> encode_remote_metadata(const remote_metadata& metadata,
                                                             size_t group_count) {
  if (group_count == 0 || group_count > max_group_count
      || metadata.groups.size() != group_count)
    return fail(errc::invalid_argument, "group_count");
  if (auto field = first_unknown(metadata))
    return fail(errc::invalid_argument, field);
  std::vector<int32_t> out{metadata.length, metadata.format};
  for (const auto& group : metadata.groups) {
    out.push_back(*normalise_dtype(group.dtype));
    out.insert(out.end(), group.shape.begin(), group.shape.end());
  }
  std::vector<std::byte> result(out.size() * sizeof(int32_t));
  std::memcpy(result.data(), out.data(), result.size());
  return result;
}

} // namespace kvasir::lm
