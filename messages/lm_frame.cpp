#include "messages/lm_frame.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvasir::lm {

namespace {

static_assert(std::endian::native == std::endian::little, "headers are copied as they are");

using fields = std::array<int32_t, 9>;
static_assert(sizeof(fields) == server_header_size);
static_assert(sizeof(fields) + max_key_size == client_header_size);

caf::error refuse(const char* field) {
  return caf::make_error(errc::invalid_argument, std::string{field});
}

caf::error malformed(const char* field) {
  return caf::make_error(errc::malformed_frame, std::string{field});
}

/// The name of the first field that has no place in the tables, or nullptr.
const char* first_unknown(const object_layout& layout, int32_t location, int32_t length) {
  if (!is_memory_format(layout.format))
    return "fmt";
  if (!normalise_dtype(layout.dtype))
    return "dtype";
  if (!is_location(location))
    return "location";
  if (length < 0)
    return "length";
  return nullptr;
}

} // namespace

std::string_view to_string(header_fault fault) {
  switch (fault) {
    case header_fault::none:
      return "none";
    case header_fault::unknown_command:
      return "unknown_command";
    case header_fault::negative_length:
      return "negative_length";
    case header_fault::unknown_format:
      return "unknown_format";
    case header_fault::unknown_dtype:
      return "unknown_dtype";
    case header_fault::unknown_location:
      return "unknown_location";
    case header_fault::bad_key:
      return "bad_key";
  }
  return "unknown";
}

client_header_result parse_client_header(std::span<const std::byte, client_header_size> bytes) {
  client_header_result result;
  auto& header = result.header;
  fields in;
  std::memcpy(in.data(), bytes.data(), sizeof(in));
  auto fail = [&](header_fault fault) {
    result.fault = fault;
    return std::move(result);
  };
  const auto op = to_command(in[0]);
  if (!op)
    return fail(header_fault::unknown_command);
  header.op = *op;
  header.length = in[1];
  if (header.op == command::put && header.length < 0)
    return fail(header_fault::negative_length);
  if (!is_memory_format(in[2]))
    return fail(header_fault::unknown_format);
  const auto dtype = normalise_dtype(in[3]);
  if (!dtype)
    return fail(header_fault::unknown_dtype);
  if (!is_location(in[4]))
    return fail(header_fault::unknown_location);
  header.layout = {in[2], *dtype, {in[5], in[6], in[7], in[8]}};
  header.location = in[4];
  if (header.op == command::list || header.op == command::health)
    return result;
  auto key = canonical_key(bytes.last<max_key_size>());
  if (!key) {
    result.key_problem = key.fault;
    return fail(header_fault::bad_key);
  }
  header.key = std::move(key.bytes);
  result.kind = key.kind;
  return result;
}

caf::expected<client_header_bytes> encode_client_header(const client_header& header) {
  const auto op = static_cast<int32_t>(header.op);
  if (!to_command(op))
    return refuse("command");
  if (auto field = first_unknown(header.layout, header.location, header.length))
    return refuse(field);
  const bool names_object = header.op != command::list && header.op != command::health;
  if (header.key.size() > max_key_size || (names_object && !canonical_key(header.key)))
    return refuse("key");
  const auto& shape = header.layout.shape;
  const fields out{op,
                   header.length,
                   header.layout.format,
                   *normalise_dtype(header.layout.dtype),
                   header.location,
                   shape[0],
                   shape[1],
                   shape[2],
                   shape[3]};
  client_header_bytes result;
  std::memcpy(result.data(), out.data(), sizeof(out));
  auto* text = result.data() + sizeof(out);
  std::memset(text, ' ', max_key_size);
  std::memcpy(text, header.key.data(), header.key.size());
  return result;
}

caf::expected<server_header>
parse_server_header(std::span<const std::byte, server_header_size> bytes) {
  fields in;
  std::memcpy(in.data(), bytes.data(), sizeof(in));
  const auto code = to_return_code(in[0]);
  if (!code)
    return malformed("code");
  server_header result{*code, in[1], {in[2], in[3], {in[4], in[5], in[6], in[7]}}, in[8]};
  if (auto field = first_unknown(result.layout, result.location, result.length))
    return malformed(field);
  result.layout.dtype = *normalise_dtype(result.layout.dtype);
  return result;
}

caf::expected<server_header_bytes> encode_server_header(const server_header& header) {
  const auto code = static_cast<int32_t>(header.code);
  if (!to_return_code(code))
    return refuse("code");
  if (auto field = first_unknown(header.layout, header.location, header.length))
    return refuse(field);
  const auto& shape = header.layout.shape;
  const fields out{code,
                   header.length,
                   header.layout.format,
                   *normalise_dtype(header.layout.dtype),
                   shape[0],
                   shape[1],
                   shape[2],
                   shape[3],
                   header.location};
  return std::bit_cast<server_header_bytes>(out);
}

server_header_bytes plain_reply(return_code code) {
  const fields out{static_cast<int32_t>(code), 0, static_cast<int32_t>(memory_format::kv_2ltd),
                   static_cast<int32_t>(dtype_code::float16)};
  return std::bit_cast<server_header_bytes>(out);
}

} // namespace kvasir::lm
