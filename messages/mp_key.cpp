#include "messages/mp_key.hpp"

#include "messages/lm_unicode.hpp"
#include "messages/mp_fields.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace kvasir::mp {

namespace {

constexpr size_t max_model_bytes = 1024;
constexpr size_t max_request_id_bytes = 4096;
constexpr size_t max_salt_characters = 128;
/// What a salt takes as UTF-8, and what a chunk's key can hold of it.
constexpr size_t max_salt_bytes = 512;
constexpr uint64_t max_readers = 128;

size_t character_count(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

} // namespace

// -- fields -----------------------------------------------------------------------------

void field_reader::refuse(std::string_view name) {
  if (bad_.empty())
    bad_ = name;
}

caf::error field_reader::error() const {
  return caf::make_error(errc::invalid_argument, bad_);
}

msgpack_value* field_reader::field(std::string_view name, bool required) {
  auto found = map_.find(name);
  if (found == nullptr && required)
    refuse(name);
  return found;
}

uint64_t field_reader::unsigned_in(std::string_view name, uint64_t lowest, uint64_t highest) {
  auto found = field(name, true);
  auto value = found == nullptr ? std::nullopt : found->as_unsigned(lowest, highest);
  if (!value)
    refuse(name);
  return value.value_or(lowest);
}

uint64_t field_reader::unsigned_in(std::string_view name, uint64_t lowest, uint64_t highest,
                                   uint64_t missing) {
  auto found = field(name, false);
  if (found == nullptr || found->what == msgpack_value::kind::nil)
    return missing;
  return unsigned_in(name, lowest, highest);
}

std::string field_reader::text(std::string_view name, size_t longest_bytes) {
  auto found = field(name, true);
  if (found == nullptr)
    return {};
  if (found->what != msgpack_value::kind::text || found->text.size() > longest_bytes
      || !lm::is_utf8(found->text)) {
    refuse(name);
    return {};
  }
  return std::string{found->text};
}

bool field_reader::boolean(std::string_view name) {
  auto found = field(name, true);
  if (found != nullptr && found->what != msgpack_value::kind::boolean)
    refuse(name);
  return found != nullptr && found->boolean;
}

uint64_t field_reader::bits(std::string_view name) {
  auto found = field(name, true);
  if (found != nullptr && found->what != msgpack_value::kind::integer)
    refuse(name);
  return found == nullptr ? 0 : found->integer;
}

std::vector<uint32_t> field_reader::integers(std::string_view name) {
  auto found = field(name, true);
  if (found == nullptr)
    return {};
  if (found->what != msgpack_value::kind::integers) {
    refuse(name);
    return {};
  }
  return std::move(found->integers);
}

// -- the key ----------------------------------------------------------------------------

caf::expected<cache_key> parse_cache_key(std::span<const std::byte> frame) {
  constexpr auto any = std::numeric_limits<uint64_t>::max();
  auto map = parse_msgpack(frame);
  if (!map)
    return std::move(map.error());
  if (map->what != msgpack_value::kind::map)
    return caf::make_error(errc::malformed_frame, "a key is a map");
  field_reader fields{*map};
  cache_key result;
  result.model_name = fields.text("model_name", max_model_bytes);
  if (result.model_name.empty() || result.model_name.find('@') != std::string::npos)
    fields.refuse("model_name");
  result.world_size = static_cast<uint32_t>(fields.unsigned_in("world_size", 1, 255));
  if (auto id = fields.unsigned_in("worker_id", 0, result.world_size - 1, any); id != any)
    result.worker_id = static_cast<uint32_t>(id);
  result.token_ids = fields.integers("token_ids");
  result.start = fields.unsigned_in("start", 0, any);
  result.end = fields.unsigned_in("end", 0, any);
  result.request_id = fields.text("request_id", max_request_id_bytes);
  if (fields.field("cache_salt", false) != nullptr) {
    result.cache_salt = fields.text("cache_salt", max_salt_bytes);
    if (!is_cache_salt(result.cache_salt))
      fields.refuse("cache_salt");
  }
  result.num_kv_readers
    = static_cast<uint32_t>(fields.unsigned_in("num_kv_readers", 0, max_readers, 0));
  if (!fields)
    return fields.error();
  return result;
}

bool is_cache_salt(std::string_view text) {
  return text.size() <= max_salt_bytes && lm::is_utf8(text)
         && character_count(text) <= max_salt_characters
         && text.find_first_of(std::string_view{"@/\\\0", 4}) == std::string_view::npos;
}

} // namespace kvasir::mp
