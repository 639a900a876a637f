// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/chunk_messages.hpp"

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/expected.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

/// How a process of this host asks the storage manager of its node: frames over a Unix socket. The
/// requests are those that everybody sends to the manager; only their owner is the node's to say.
///
///   frame    header (16 bytes), payload: the message, as CAF's binary serializer writes it
///   joining  op::hello -> op::hello, with file descriptors beside it: the pool, then, if
///            `welcome::indexed`, the index and the page of holds
///   asking   a request -> an answer of the same op and id, or an error: `status` is its errc and
///            the payload its text. Answers come in the order of the requests.
///
/// Both sides run on one host, of one version: numbers are in its byte order.
namespace kvasir::join {

inline constexpr uint32_t version = 1;

/// Says at once that the other side speaks something else.
inline constexpr uint32_t magic = 0x4a56'4b01;

/// 128 k tokens in chunks of 16 take 3 MB.
inline constexpr uint32_t max_payload_bytes = 16u << 20;

enum class op : uint16_t {
  hello = 1,
  reserve_chunks,
  finish_chunks,
  acquire_chunks,
  end_leases,
  remove_object,
  get_storage_status,
};

struct frame_header {
  uint32_t payload_bytes = 0;
  op what{};
  uint16_t status = 0; ///< 0, or an `errc`.
  uint64_t id = 0;
};
static_assert(sizeof(frame_header) == 16 && std::is_trivially_copyable_v<frame_header>);

struct hello {
  uint32_t magic = join::magic;
  uint32_t version = join::version;
  std::string model;
  uint32_t world_size = 1;
  uint32_t rank = 0;
};

struct welcome {
  uint32_t magic = join::magic;
  uint32_t version = join::version;
  uint64_t pool_bytes = 0;
  uint32_t chunk_tokens = 0;
  uint8_t hash_algorithm = 0; ///< An `mp::token_hash_algorithm`.
  std::string none_hash;      ///< 32 bytes.
  bool indexed = false;       ///< The index and the page of holds are here, too.
};

/// What is asked, under which number, and what it is answered with.
template <class Request>
struct question;

template <>
struct question<hello> {
  static constexpr auto code = op::hello;
  using answer = welcome;
};
template <>
struct question<reserve_chunks> {
  static constexpr auto code = op::reserve_chunks;
  using answer = chunk_reservations;
};
template <>
struct question<finish_chunks> {
  static constexpr auto code = op::finish_chunks;
  using answer = chunks_finished;
};
template <>
struct question<acquire_chunks> {
  static constexpr auto code = op::acquire_chunks;
  using answer = chunks_acquired;
};
template <>
struct question<end_leases> {
  static constexpr auto code = op::end_leases;
  using answer = void;
};
template <>
struct question<remove_object> {
  static constexpr auto code = op::remove_object;
  using answer = void;
};
template <>
struct question<get_storage_status> {
  static constexpr auto code = op::get_storage_status;
  using answer = storage_status;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, hello& x) {
  return f(caf::meta::type_name("hello"), x.magic, x.version, x.model, x.world_size, x.rank);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, welcome& x) {
  return f(caf::meta::type_name("welcome"), x.magic, x.version, x.pool_bytes, x.chunk_tokens,
           x.hash_algorithm, x.none_hash, x.indexed);
}

/// Appends a frame.
template <class T>
void append_frame(std::vector<char>& out, op what, uint64_t id, const T& message) {
  const auto start = out.size();
  out.resize(start + sizeof(frame_header));
  caf::binary_serializer sink{static_cast<caf::execution_unit*>(nullptr), out};
  [[maybe_unused]] auto never = sink(const_cast<T&>(message)); // A vector takes everything.
  frame_header header{static_cast<uint32_t>(out.size() - start - sizeof(frame_header)), what, 0,
                      id};
  std::memcpy(out.data() + start, &header, sizeof(header));
}

/// Appends the answer of a request that has no value.
void append_done(std::vector<char>& out, op what, uint64_t id);

void append_error(std::vector<char>& out, op what, uint64_t id, const caf::error& why);

/// The error of an answer whose status is not 0.
caf::error error_of(const frame_header& header, const char* payload);

/// Reads a message that is all of the payload.
/// @returns whether it is one. Takes no more memory than a small multiple of the payload.
template <class T>
bool read_payload(const frame_header& header, const char* payload, T& message) {
  caf::binary_deserializer source{static_cast<caf::execution_unit*>(nullptr), payload,
                                  header.payload_bytes};
  return !source(message) && source.remaining() == 0;
}

} // namespace kvasir::join
