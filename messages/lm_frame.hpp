// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/lm_key.hpp"
#include "messages/lm_tables.hpp"
#include "messages/object.hpp"

#include <caf/expected.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// The two fixed-size headers of lm://. All integers are 32-bit signed, little-endian,
/// unpadded.
///
///   request, 186 bytes: command length fmt dtype location s0 s1 s2 s3 | key, 150 bytes
///   reply,    36 bytes: code length fmt dtype s0 s1 s2 s3 location
///
/// A PUT is followed by `length` bytes, a GET hit's reply too; nothing else has a body.
/// Compat: the reply has its location at the end, the request in the middle.
///
/// Threading: pure functions. No I/O, no exception for any input, no allocation by a length
/// read from the wire (parsing allocates at most the key string).
/// Source: LMCache 0.5.6 `protocol.py`, `ClientMetaMessage` and `ServerMetaMessage`.
namespace kvasir::lm {

using client_header_bytes = std::array<std::byte, client_header_size>;
using server_header_bytes = std::array<std::byte, server_header_size>;

struct client_header {
  command op = command::health;
  int32_t length = 0; ///< PUT: bytes that follow. Otherwise whatever was sent; no meaning.
  object_layout
    layout; ///< Of PUT. Others send fmt 1, dtype 2, shape 0,0,0,0. dtype 1 reads as 2.
  int32_t location = 0; ///< Compat: checked, then forgotten; every reply carries 0.
  std::string key;      ///< Parsed: `canonical_key`. Empty for LIST and HEALTH.

  friend bool operator==(const client_header&, const client_header&) = default;
};

/// Why a request header is refused, grouped by what the server does next.
enum class header_fault : uint8_t {
  none,
  // -- where the next request starts is unknown: close ----------------------------------
  unknown_command,
  negative_length,
  // -- well framed: drain `body_size()` bytes, answer 400 (a PUT is not answered), go on
  unknown_format,
  unknown_dtype,
  unknown_location,
  bad_key,
};

/// The name as written above.
std::string_view to_string(header_fault fault);

struct client_header_result {
  client_header header; ///< After a bad request `op` and `length` hold, the rest may be unset.
  header_fault fault = header_fault::none;
  key_kind kind = key_kind::raw;
  key_fault key_problem = key_fault::none; ///< More on `bad_key`.

  bool good() const { return fault == header_fault::none; }
  bool framing_lost() const {
    return fault == header_fault::unknown_command || fault == header_fault::negative_length;
  }
  /// Bytes that follow the header and belong to this request. @pre `!framing_lost()`
  uint32_t body_size() const {
    return header.op == command::put ? static_cast<uint32_t>(header.length) : 0;
  }
};

/// Reads a request header.
/// Compat: fmt, dtype and location are checked for every command, as lmcache_server does, which
/// closes the connection instead of answering. The length of anything but a PUT is ignored,
/// whatever its sign. LIST and HEALTH name no object, so their key is not looked at.
client_header_result parse_client_header(std::span<const std::byte, client_header_size> bytes);

/// Writes a request header; the key is written as it is and padded with blanks.
/// @returns `errc::invalid_argument` for what the protocol cannot say: an unknown format, dtype
/// or location, a negative length, or a key that `canonical_key` refuses (PUT, GET, EXIST).
/// Compat: LMCache cuts a key at 150 *bytes*, whereby different keys become one.
caf::expected<client_header_bytes> encode_client_header(const client_header& header);

struct server_header {
  return_code code = return_code::fail;
  int32_t length = 0; ///< Bytes that follow; 0 unless this answers a GET (or LIST) with a hit.
  object_layout layout{static_cast<int32_t>(memory_format::kv_2ltd),
                       static_cast<int32_t>(dtype_code::float16),
                       {}};
  int32_t location = 0;

  friend bool operator==(const server_header&, const server_header&) = default;
};

/// Reads a reply header.
/// @returns `errc::malformed_frame` if a field is outside its table or the length is negative:
/// the stream is out of step and cannot be used any more.
caf::expected<server_header>
parse_server_header(std::span<const std::byte, server_header_size> bytes);

/// Writes a reply header. Allocates nothing unless it fails.
/// @returns `errc::invalid_argument` for an unknown format, dtype or location, or a negative
/// length.
caf::expected<server_header_bytes> encode_server_header(const server_header& header);

/// The replies without a body: 200 or 400, then 0,1,2,0,0,0,0,0.
server_header_bytes plain_reply(return_code code);

/// What somebody who just connected seems to speak.
enum class protocol : uint8_t { lm, http, tls, zmtp, resp, unknown };

std::string_view to_string(protocol value);

/// Tells from the first bytes of a connection whether its client took us for someone else, so
/// that the log can say so. Needs four bytes; fewer are `unknown`. `lm` means only that the
/// first four are a command.
protocol detect_protocol(std::span<const std::byte> first_bytes);

} // namespace kvasir::lm
