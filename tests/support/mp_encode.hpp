// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/mp_protocol.hpp"

#include <msgpack.hpp>

#include <string>
#include <string_view>

/// The arguments of MP requests as LMCache's clients write them.
namespace kvasir::mp::test {

inline void pack_text(msgpack::packer<msgpack::sbuffer>& to, std::string_view text) {
  to.pack_str(static_cast<uint32_t>(text.size()));
  to.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

template <class Pack>
std::string packed(Pack pack) {
  msgpack::sbuffer buffer;
  msgpack::packer<msgpack::sbuffer> to{buffer};
  pack(to);
  return {buffer.data(), buffer.size()};
}

inline std::string encode_key(const cache_key& key) {
  return packed([&](auto& to) {
    to.pack_map(10);
    pack_text(to, "model_name");
    pack_text(to, key.model_name);
    pack_text(to, "world_size");
    to.pack_uint32(key.world_size);
    pack_text(to, "worker_id");
    key.worker_id ? to.pack_uint32(*key.worker_id) : to.pack_nil();
    pack_text(to, "token_ids");
    to.pack_array(static_cast<uint32_t>(key.token_ids.size()));
    for (auto token : key.token_ids)
      to.pack_uint32(token);
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
    to.pack_uint32(key.num_kv_readers);
  });
}

inline std::string encode_registration_argument(const register_request& request) {
  return packed([&](auto& to) {
    to.pack_map(9);
    pack_text(to, "instance_id");
    to.pack_uint64(request.instance_id);
    pack_text(to, "model_name");
    pack_text(to, request.model_name);
    pack_text(to, "world_size");
    to.pack_uint32(request.world_size);
    pack_text(to, "block_size");
    to.pack_uint32(request.block_size);
    pack_text(to, "num_layers");
    to.pack_uint32(request.num_layers);
    pack_text(to, "hidden_dim_size");
    to.pack_uint32(request.hidden_dim_size);
    pack_text(to, "dtype_str");
    pack_text(to, request.dtype);
    pack_text(to, "use_mla");
    request.single_plane ? to.pack_true() : to.pack_false();
    pack_text(to, "num_physical_slots");
    request.num_physical_slots ? to.pack_uint32(*request.num_physical_slots) : to.pack_nil();
  });
}

} // namespace kvasir::mp::test
