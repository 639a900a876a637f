// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/mp_protocol.hpp"

#include <msgpack.hpp>

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// The client's side of the MP protocol, for tests only: writes requests as LMCache's adapters
/// do.
namespace kvasir::mp::wire {

using frames = std::vector<std::string>;

struct text_buffer {
  std::string text;

  void write(const char* data, size_t size) { text.append(data, size); }
};

using packer = msgpack::packer<text_buffer>;

template <class Pack>
std::string packed(Pack pack) {
  text_buffer buffer;
  packer to{buffer};
  pack(to);
  return std::move(buffer.text);
}

inline void pack_text(packer& to, std::string_view text) {
  to.pack_str(static_cast<uint32_t>(text.size()));
  to.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

inline std::string text_frame(std::string_view text) {
  return packed([&](packer& to) { pack_text(to, text); });
}

inline std::string uint_frame(uint64_t value) {
  return packed([&](packer& to) { to.pack_uint64(value); });
}

/// Always eight bytes. msgpack-cxx would write 5.0 as an integer, which LMCache never does.
inline std::string real_frame(double value) {
  auto result = std::string{"\xcb"};
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8)
    result += static_cast<char>(bits >> shift);
  return result;
}

inline std::string binary_frame(std::span<const std::byte> data) {
  return packed([&](packer& to) {
    to.pack_bin(static_cast<uint32_t>(data.size()));
    to.pack_bin_body(reinterpret_cast<const char*>(data.data()),
                     static_cast<uint32_t>(data.size()));
  });
}

/// All ten fields, in LMCache's order.
inline std::string key_frame(const cache_key& key) {
  return packed([&](packer& to) {
    to.pack_map(10);
    pack_text(to, "model_name");
    pack_text(to, key.model_name);
    pack_text(to, "world_size");
    to.pack_uint64(key.world_size);
    pack_text(to, "worker_id");
    key.worker_id ? to.pack_uint64(*key.worker_id) : to.pack_nil();
    pack_text(to, "token_ids");
    to.pack_array(static_cast<uint32_t>(key.token_ids.size()));
    for (auto token : key.token_ids)
      to.pack_uint64(token);
    pack_text(to, "start");
    to.pack_uint64(key.start);
    pack_text(to, "end");
    to.pack_uint64(key.end);
    pack_text(to, "request_id");
    pack_text(to, key.request_id);
    pack_text(to, "cache_salt");
    pack_text(to, key.cache_salt);
    pack_text(to, "request_configs");
    to.pack_nil();
    pack_text(to, "num_kv_readers");
    to.pack_uint64(key.num_kv_readers);
  });
}

inline std::string registration_frame(const register_request& request) {
  return packed([&](packer& to) {
    to.pack_map(9);
    pack_text(to, "instance_id");
    to.pack_uint64(request.instance_id);
    pack_text(to, "model_name");
    pack_text(to, request.model_name);
    for (auto [name, value] : {std::pair{"world_size", request.world_size},
                               {"block_size", request.block_size},
                               {"num_layers", request.num_layers},
                               {"hidden_dim_size", request.hidden_dim_size}}) {
      pack_text(to, name);
      to.pack_uint64(value);
    }
    pack_text(to, "dtype_str");
    pack_text(to, request.dtype);
    pack_text(to, "use_mla");
    request.single_plane ? to.pack_true() : to.pack_false();
    pack_text(to, "num_physical_slots");
    request.num_physical_slots ? to.pack_uint64(*request.num_physical_slots) : to.pack_nil();
  });
}

template <class Type, class... Types>
inline constexpr bool is_one_of = (std::is_same_v<Type, Types> || ...);

/// The argument frames of a request. What a parser does not keep is written as an LMCache client
/// would: 1 for the tensor parallel size, no records of blocks.
inline frames argument_frames(const request& any) {
  const auto one = uint_frame(1);
  return std::visit(
    [&](const auto& r) -> frames {
      using type = std::decay_t<decltype(r)>;
      if constexpr (std::is_same_v<type, ping_request>)
        return {r.instance ? uint_frame(*r.instance) : std::string{"\xc0"}};
      else if constexpr (std::is_same_v<type, clear_request>)
        return {r.force ? "\xc3" : "\xc2"};
      else if constexpr (is_one_of<type, lookup_request, free_lookup_locks_request>)
        return {key_frame(r.key), one};
      else if constexpr (is_one_of<type, query_prefetch_status_request, end_session_request>)
        return {text_frame(r.request_id)};
      else if constexpr (std::is_same_v<type, wait_prefetch_status_request>)
        return {text_frame(r.request_id), real_frame(r.timeout_seconds)};
      else if constexpr (std::is_same_v<type, report_block_allocation_request>)
        return {one, text_frame("m"), "\x90"};
      else if constexpr (std::is_same_v<type, subscribe_kv_events_request>)
        return {uint_frame(r.instance_id), text_frame(r.model_name), uint_frame(r.cursor),
                uint_frame(r.max_events)};
      else if constexpr (std::is_same_v<type, register_request>)
        return {registration_frame(r)};
      else if constexpr (std::is_same_v<type, unregister_request>)
        return {uint_frame(r.instance_id)};
      else if constexpr (std::is_same_v<type, commit_store_request>)
        return {key_frame(r.key), uint_frame(r.instance_id), binary_frame(r.data)};
      else if constexpr (is_one_of<type, prepare_store_request, prepare_retrieve_request,
                                   commit_retrieve_request>)
        return {key_frame(r.key), uint_frame(r.instance_id)};
      else
        return {};
    },
    any);
}

inline caf::expected<request> parse(operation what, const frames& arguments) {
  std::vector<std::span<const std::byte>> spans;
  for (const auto& frame : arguments)
    spans.push_back(std::as_bytes(std::span{frame.data(), frame.size()}));
  return parse_request(what, spans);
}

} // namespace kvasir::mp::wire
