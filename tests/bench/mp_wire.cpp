#include "mp_wire.hpp"

#include <msgpack.hpp>

#include <bit>
#include <map>

namespace kvasir::bench::mp {

namespace {

/// Appends to a string what a packer writes.
struct string_stream {
  std::string& text;
  void write(const char* data, std::size_t size) { text.append(data, size); }
};

template <class... Values>
std::string packed(const Values&... values) {
  std::string result;
  string_stream stream{result};
  msgpack::packer<string_stream> to{stream};
  (to.pack(values), ...);
  return result;
}

std::string encode_key(const prompt& about, bool of_worker) {
  std::string result;
  result.reserve(256 + about.tokens.size() * 5);
  string_stream stream{result};
  msgpack::packer<string_stream> to{stream};
  auto token_count = about.tokens.size();
  to.pack_map(10);
  to.pack("model_name").pack(about.model);
  to.pack("world_size").pack(1);
  to.pack("worker_id");
  if (of_worker)
    to.pack(0);
  else
    to.pack_nil();
  to.pack("token_ids").pack_array(static_cast<std::uint32_t>(token_count));
  for (auto token : about.tokens)
    to.pack(token);
  to.pack("start").pack(0);
  to.pack("end").pack(token_count);
  to.pack("request_id").pack(about.request_id);
  to.pack("cache_salt").pack("");
  to.pack("request_configs").pack_nil();
  to.pack("num_kv_readers").pack(1);
  return result;
}

void append_int32(std::string& to, std::uint32_t value) {
  static_assert(std::endian::native == std::endian::little);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_int64(std::string& to, std::uint64_t value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A pickled text of any length.
void append_text(std::string& to, std::string_view text) {
  to += 'X';
  append_int32(to, static_cast<std::uint32_t>(text.size()));
  to += text;
}

/// A pickled int32.
void append_number(std::string& to, std::size_t value) {
  to += 'J';
  append_int32(to, static_cast<std::uint32_t>(value));
}

/// What torch's legacy save writes before the raw bytes of a float16 storage on the CPU.
std::string make_storage_head(std::size_t element_count) {
  using namespace std::string_view_literals;
  std::string result{"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8\x50\x19."sv};
  result += "\x80\x02M\xe9\x03."sv;
  result += "\x80\x02}("sv;
  append_text(result, "protocol_version");
  result += "M\xe9\x03"sv;
  append_text(result, "little_endian");
  result += '\x88';
  append_text(result, "type_sizes");
  result += "}("sv;
  for (auto [name, size] : {std::pair{"short", '\2'}, {"int", '\4'}, {"long", '\4'}}) {
    append_text(result, name);
    result += 'K';
    result += size;
  }
  result += "uu.\x80\x02("sv;
  append_text(result, "storage");
  result += "ctorch\nHalfStorage\n"sv;
  append_text(result, "0");
  append_text(result, "cpu");
  append_number(result, element_count);
  result += "NtQ.\x80\x02]"sv;
  append_text(result, "0");
  result += "a."sv;
  append_int64(result, element_count);
  return result;
}

using fields = std::map<std::string_view, msgpack::object>;

std::string_view text_of(const msgpack::object& value) {
  if (value.type == msgpack::type::BIN)
    return {value.via.bin.ptr, value.via.bin.size};
  if (value.type == msgpack::type::STR)
    return {value.via.str.ptr, value.via.str.size};
  throw msgpack::type_error{};
}

fields fields_of(const msgpack::object& value) {
  if (value.type != msgpack::type::MAP)
    throw msgpack::type_error{};
  fields result;
  for (auto& field : value.via.map)
    result[text_of(field.key)] = field.val;
  return result;
}

std::vector<slot> slots_of(const msgpack::object& context) {
  std::vector<slot> result;
  auto named = fields_of(context);
  auto found = named.find("slots");
  if (found == named.end())
    return result;
  if (found->second.type != msgpack::type::ARRAY)
    throw msgpack::type_error{};
  for (auto& element : found->second.via.array) {
    auto of_slot = fields_of(element);
    result.push_back(
      {of_slot["offset"].as<std::size_t>(), of_slot["length"].as<std::size_t>()});
  }
  return result;
}

/// Calls `read` with the object in `frame`, whose texts and binaries point into the frame.
template <class Read>
auto decoded(std::string_view frame, Read read)
  -> std::optional<decltype(read(std::declval<const msgpack::object&>()))> {
  try {
    auto in_place = [](msgpack::type::object_type, std::size_t, void*) {
      return true;
    };
    auto handle = msgpack::unpack(frame.data(), frame.size(), in_place);
    return read(handle.get());
  } catch (const std::exception&) { // of msgpack-cxx: the frame is something else
    return std::nullopt;
  }
}

} // namespace

std::string encode_operation(operation what) {
  return packed(static_cast<std::uint64_t>(what));
}

std::string encode_nil() {
  return packed(msgpack::type::nil_t{});
}

std::string encode(bool value) {
  return packed(value);
}

std::string encode(std::uint64_t value) {
  return packed(value);
}

std::string encode(double value) {
  return packed(value);
}

std::string encode(std::string_view text) {
  return packed(text);
}

std::string encode_lookup_key(const prompt& about) {
  return encode_key(about, false);
}

std::string encode_worker_key(const prompt& about) {
  return encode_key(about, true);
}

std::string encode_registration(std::uint64_t instance_id, std::string_view model,
                                const layout& shape) {
  std::string result;
  string_stream stream{result};
  msgpack::packer<string_stream> to{stream};
  to.pack_map(9);
  to.pack("instance_id").pack(instance_id);
  to.pack("model_name").pack(model);
  to.pack("world_size").pack(1);
  to.pack("block_size").pack(16);
  to.pack("num_layers").pack(layout::layers);
  to.pack("hidden_dim_size").pack(shape.hidden);
  to.pack("dtype_str").pack("float16");
  to.pack("use_mla").pack(false);
  to.pack("num_physical_slots").pack(shape.chunk_tokens);
  return result;
}

inline_envelope make_inline_envelope(const layout& shape) {
  using namespace std::string_view_literals;
  auto plane = shape.chunk_tokens * shape.hidden;
  auto storage_head = make_storage_head(shape.chunk_bytes() / 2);
  std::string before{"\x80\x04]ctorch._utils\n_rebuild_tensor_v2\n("sv};
  before += "ctorch.storage\n_load_from_bytes\n\x8e"sv;
  append_int64(before, storage_head.size() + shape.chunk_bytes());
  before += storage_head;
  std::string after{"\x85RK\0("sv};
  for (auto dimension : {std::size_t{2}, layout::layers, shape.chunk_tokens, shape.hidden})
    append_number(after, dimension);
  after += "t("sv;
  for (auto stride : {layout::layers * plane, plane, shape.hidden, std::size_t{1}})
    append_number(after, stride);
  after += "t\x89"
           "ccollections\nOrderedDict\n)RtRa."sv;
  std::string head;
  string_stream stream{head};
  msgpack::packer<string_stream> to{stream};
  to.pack_bin(static_cast<std::uint32_t>(before.size() + shape.chunk_bytes() + after.size()));
  return {head + before, after};
}

std::optional<std::string_view> find_inline_chunk(std::string_view pickle,
                                                  std::size_t chunk_bytes) {
  constexpr std::size_t max_head_size = 1024;
  // The end of the pickled list of storage keys, and the number of elements.
  std::string before_bytes{"a."};
  append_int64(before_bytes, chunk_bytes / 2);
  auto at = pickle.substr(0, max_head_size).find(before_bytes);
  if (at == std::string_view::npos)
    return std::nullopt;
  auto rest = pickle.substr(at + before_bytes.size());
  if (rest.size() < chunk_bytes)
    return std::nullopt;
  return rest.substr(0, chunk_bytes);
}

std::optional<std::uint64_t> decode_unsigned(std::string_view frame) {
  return decoded(frame, [](const msgpack::object& value) { return value.as<std::uint64_t>(); });
}

bool decode_true(std::string_view frame) {
  return decoded(frame, [](const msgpack::object& value) { return value.as<bool>(); })
    .value_or(false);
}

std::optional<segment_info> decode_segment(std::string_view frame) {
  return decoded(frame, [](const msgpack::object& value) {
    auto named = fields_of(value);
    return segment_info{std::string{text_of(named["shm_name"])},
                        named["pool_size"].as<std::size_t>()};
  });
}

std::optional<std::vector<slot>> decode_prepared_store(std::string_view frame) {
  return decoded(
    frame, [](const msgpack::object& value) { return slots_of(fields_of(value)["context"]); });
}

std::optional<prepared_retrieve> decode_prepared_retrieve(std::string_view frame) {
  return decoded(frame, [](const msgpack::object& value) {
    auto named = fields_of(value);
    return prepared_retrieve{named["success"].as<bool>(), text_of(named["data"]),
                             slots_of(named["context"])};
  });
}

} // namespace kvasir::bench::mp
