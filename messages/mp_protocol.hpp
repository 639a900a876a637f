// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/kv_layout.hpp"
#include "messages/mp_key.hpp"

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

/// The requests of LMCache's multiprocess (MP) protocol, as they cross a ZeroMQ socket: an
/// operation, and one msgpack value per frame for each argument. All texts in them are UTF-8.
///
/// Threading: pure functions. Source: LMCache 0.5.6 `multiprocess/protocols`; conversations that
/// were recorded: `tests/golden/mp/`.
namespace kvasir::mp {

/// With the numbers of the protocol's frozen table. Those from 100 on have only a name on the
/// wire.
enum class operation : uint8_t {
  register_kv_cache = 1,
  unregister_kv_cache = 2,
  register_q_cache = 3,
  unregister_q_cache = 4,
  store_q = 5,
  store = 6,
  retrieve = 7,
  lookup = 8,
  query_prefetch_status = 9,
  wait_prefetch_status = 10,
  free_lookup_locks = 12,
  end_session = 13,
  register_kv_cache_engine_driven_context = 14,
  unregister_kv_cache_engine_driven_context = 15,
  prepare_store = 16,
  commit_store = 17,
  prepare_retrieve = 18,
  commit_retrieve = 19,
  clear = 20,
  get_chunk_size = 21,
  ping = 22,
  report_block_allocation = 23,
  noop = 24,
  cb_register_rope = 25,
  cb_unregister_rope = 26,
  cb_retrieve_pre_computed = 27,
  cb_unified_lookup = 28,
  p2p_lookup_and_lock = 29,
  p2p_query_lookup_results = 30,
  p2p_unlock_objects = 31,
  get_experimental = 32,
  cb_protocol_handshake = 33,
  subscribe_kv_events = 100,
  server_module_call = 101,
  cb_reorder_plan = 102,
};

std::string_view to_string(operation what);

/// Reads an operation frame: its number or its name; both are in use.
/// @returns the operation, or `errc::malformed_frame` if it is neither, `errc::not_found` if
/// there is no such operation.
caf::expected<operation> parse_operation(std::span<const std::byte> frame);

struct get_chunk_size_request {};
struct get_experimental_request {};
struct noop_request {};

struct ping_request {
  std::optional<uint64_t> instance; ///< None: not a worker.
};

struct clear_request {
  bool force = false;
};

struct lookup_request {
  cache_key key;
};

struct query_prefetch_status_request {
  std::string request_id;
};

struct wait_prefetch_status_request {
  std::string request_id;
  double timeout_seconds = 0; ///< Finite. Negative: no wait.
};

struct free_lookup_locks_request {
  cache_key key;
};

struct end_session_request {
  std::string request_id;
};

/// For observation; its content is not kept.
struct report_block_allocation_request {};

struct subscribe_kv_events_request {
  uint64_t instance_id = 0;
  std::string model_name;
  uint64_t cursor = 0;
  uint32_t max_events = 1; ///< 1..1024
};

struct register_request {
  uint64_t instance_id = 0; ///< Random 63 bits; any 64 are taken.
  std::string model_name;
  uint32_t world_size = 1;
  uint32_t block_size = 0;
  uint32_t num_layers = 0;
  uint32_t hidden_dim_size = 0;
  std::string dtype;
  bool single_plane = false;                  ///< `use_mla` on the wire.
  std::optional<uint32_t> num_physical_slots; ///< None: the chunk size.

  /// @param chunk_size tokens per chunk of this node
  /// @returns the layout, or why it is none (`make_kv_layout`).
  caf::expected<kv_layout> layout(uint32_t chunk_size) const;

  friend bool operator==(const register_request&, const register_request&) = default;
};

struct unregister_request {
  uint64_t instance_id = 0;
};

struct prepare_store_request {
  cache_key key;
  uint64_t instance_id = 0;
};

struct commit_store_request {
  cache_key key;
  uint64_t instance_id = 0;
  std::span<const std::byte> data; ///< Into the argument's frame. Empty: slots were written.
};

struct prepare_retrieve_request {
  cache_key key;
  uint64_t instance_id = 0;
};

struct commit_retrieve_request {
  cache_key key;
  uint64_t instance_id = 0;
};

using request
  = std::variant<get_chunk_size_request, get_experimental_request, noop_request, ping_request,
                 clear_request, lookup_request, query_prefetch_status_request,
                 wait_prefetch_status_request, free_lookup_locks_request, end_session_request,
                 report_block_allocation_request, subscribe_kv_events_request, register_request,
                 unregister_request, prepare_store_request, commit_store_request,
                 prepare_retrieve_request, commit_retrieve_request>;

/// Reads the arguments of an operation, one frame each.
/// @returns the request, or `errc::not_found` if kvasir does not serve that operation,
/// `errc::malformed_frame` or `errc::invalid_argument` for another number of frames or a bad
/// one.
caf::expected<request> parse_request(operation what,
                                     std::span<const std::span<const std::byte>> arguments);

} // namespace kvasir::mp
