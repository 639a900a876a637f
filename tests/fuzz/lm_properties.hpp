// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/lm_frame.hpp"
#include "messages/lm_remote_metadata.hpp"
#include "messages/lm_shape.hpp"
#include "messages/lm_unicode.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

/// What must hold for any bytes whatsoever. The fuzzers and the tests that replay their corpora
/// share these; each returns nullptr or says what does not hold.
namespace kvasir::lm::properties {

/// A key is refused or becomes its canonical form; that one is printable, stays as it is, and
/// says the same as the original. Both paths agree.
inline const char* check_key(std::string_view text) {
  const auto key = canonical_key(text);
  if (key != canonical_key_slow(text))
    return "the fast path disagrees with the slow one";
  if (!key)
    return key.bytes.empty() ? nullptr : "a refused key has bytes";
  if (key.bytes.empty() || key.bytes.size() > max_key_size)
    return "a canonical key is empty or too long";
  if (!is_utf8(key.bytes) || has_control(key.bytes))
    return "a canonical key is not printable";
  if (canonical_key(key.bytes) != key)
    return "a canonical key is not its own canonical form";
  const auto parsed = parse_key(text);
  if (key.kind == key_kind::raw)
    return nullptr;
  if (!parsed || to_string(*parsed) != key.bytes || parse_key(key.bytes) != parsed)
    return "a canonical key says something else than the original";
  if ((key.kind == key_kind::layer) != parsed->layer_id.has_value())
    return "a layer key without a layer, or the other way round";
  return nullptr;
}

/// A request header that parses is written back byte for byte, apart from what parsing
/// normalises on purpose: the spelling of the key and dtype 1.
inline const char* check_client_header(const client_header_bytes& bytes) {
  const auto result = parse_client_header(bytes);
  if (result.framing_lost())
    return result.good() ? "good and lost at once" : nullptr;
  if (result.header.op != command::put && result.body_size() != 0)
    return "only a PUT has a body";
  if (!result.good() || result.header.length < 0)
    return nullptr;
  const auto written = encode_client_header(result.header);
  if (!written)
    return "a good request cannot be written";
  if (!(parse_client_header(*written).header == result.header))
    return "a request reads differently after writing";
  auto expected = bytes;
  std::memcpy(expected.data() + 12, &result.header.layout.dtype, sizeof(int32_t));
  auto* key = expected.data() + client_header_size - max_key_size;
  std::fill_n(key, max_key_size, std::byte{' '});
  std::memcpy(key, result.header.key.data(), result.header.key.size());
  return *written == expected ? nullptr : "a request is written with other bytes";
}

/// A reply header that parses is written back byte for byte, apart from dtype 1.
inline const char* check_server_header(const server_header_bytes& bytes) {
  const auto header = parse_server_header(bytes);
  if (!header)
    return header.error() == errc::malformed_frame ? nullptr : "another error than promised";
  const auto written = encode_server_header(*header);
  if (!written)
    return "a good reply cannot be written";
  auto expected = bytes;
  std::memcpy(expected.data() + 12, &header->layout.dtype, sizeof(int32_t));
  if (*written != expected)
    return "a reply is written with other bytes";
  if (const auto size = byte_size(header->layout); contradicts(header->layout, 0) && size)
    return "no bytes at all are too many";
  return nullptr;
}

/// Metadata that parses is written back byte for byte, apart from dtype 1.
inline const char* check_remote_metadata(std::span<const std::byte> bytes, size_t group_count) {
  const auto metadata = parse_remote_metadata(bytes, group_count);
  if (!metadata)
    return nullptr;
  const auto written = encode_remote_metadata(*metadata, group_count);
  if (!written || written->size() != bytes.size())
    return "good metadata cannot be written";
  if (parse_remote_metadata(*written, group_count) != metadata)
    return "metadata reads differently after writing";
  for (size_t at = 0; at < bytes.size(); at += sizeof(int32_t)) {
    int32_t before = 0;
    int32_t after = 0;
    std::memcpy(&before, bytes.data() + at, sizeof(before));
    std::memcpy(&after, written->data() + at, sizeof(after));
    const bool is_dtype = at >= 8 && (at / 4 - 2) % 5 == 0;
    if (before != after && !(is_dtype && before == 1 && after == 2))
      return "metadata is written with other bytes";
  }
  return nullptr;
}

/// One header of either direction, told apart by size; any other size is only looked at.
inline const char* check_frame(std::span<const std::byte> bytes) {
  detect_protocol(bytes);
  if (bytes.size() == client_header_size) {
    client_header_bytes header;
    std::copy(bytes.begin(), bytes.end(), header.begin());
    return check_client_header(header);
  }
  if (bytes.size() == server_header_size) {
    server_header_bytes header;
    std::copy(bytes.begin(), bytes.end(), header.begin());
    return check_server_header(header);
  }
  return nullptr;
}

/// Metadata of as many groups as fit the size.
inline const char* check_remote_metadata(std::span<const std::byte> bytes) {
  return check_remote_metadata(bytes, bytes.size() < 8 ? 0 : (bytes.size() - 8) / 20);
}

} // namespace kvasir::lm::properties
