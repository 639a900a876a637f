#include "messages/mp_protocol.hpp"
#include "messages/msgpack_value.hpp"

#include <algorithm>
#include <array>

namespace kvasir::mp {

namespace {

struct named_operation {
  operation what;
  std::string_view name;
};

constexpr std::array operations{
  named_operation{operation::register_kv_cache, "register_kv_cache"},
  named_operation{operation::unregister_kv_cache, "unregister_kv_cache"},
  named_operation{operation::register_q_cache, "register_q_cache"},
  named_operation{operation::unregister_q_cache, "unregister_q_cache"},
  named_operation{operation::store_q, "store_q"},
  named_operation{operation::store, "store"},
  named_operation{operation::retrieve, "retrieve"},
  named_operation{operation::lookup, "lookup"},
  named_operation{operation::query_prefetch_status, "query_prefetch_status"},
  named_operation{operation::wait_prefetch_status, "wait_prefetch_status"},
  named_operation{operation::free_lookup_locks, "free_lookup_locks"},
  named_operation{operation::end_session, "end_session"},
  named_operation{operation::register_kv_cache_engine_driven_context,
                  "register_kv_cache_engine_driven_context"},
  named_operation{operation::unregister_kv_cache_engine_driven_context,
                  "unregister_kv_cache_engine_driven_context"},
  named_operation{operation::prepare_store, "prepare_store"},
  named_operation{operation::commit_store, "commit_store"},
  named_operation{operation::prepare_retrieve, "prepare_retrieve"},
  named_operation{operation::commit_retrieve, "commit_retrieve"},
  named_operation{operation::clear, "clear"},
  named_operation{operation::get_chunk_size, "get_chunk_size"},
  named_operation{operation::ping, "ping"},
  named_operation{operation::report_block_allocation, "report_block_allocation"},
  named_operation{operation::noop, "noop"},
  named_operation{operation::cb_register_rope, "cb_register_rope"},
  named_operation{operation::cb_unregister_rope, "cb_unregister_rope"},
  named_operation{operation::cb_retrieve_pre_computed, "cb_retrieve_pre_computed"},
  named_operation{operation::cb_unified_lookup, "cb_unified_lookup"},
  named_operation{operation::p2p_lookup_and_lock, "p2p_lookup_and_lock"},
  named_operation{operation::p2p_query_lookup_results, "p2p_query_lookup_results"},
  named_operation{operation::p2p_unlock_objects, "p2p_unlock_objects"},
  named_operation{operation::get_experimental, "get_experimental"},
  named_operation{operation::cb_protocol_handshake, "cb_protocol_handshake"},
  named_operation{operation::subscribe_kv_events, "subscribe_kv_events"},
  named_operation{operation::server_module_call, "server_module_call"},
  named_operation{operation::cb_reorder_plan, "cb_reorder_plan"},
};

/// Those from here on have no number on the wire.
constexpr uint64_t first_without_number = 100;

} // namespace

std::string_view to_string(operation what) {
  auto i = std::find_if(operations.begin(), operations.end(),
                        [&](auto& entry) { return entry.what == what; });
  return i == operations.end() ? std::string_view{"unknown"} : i->name;
}

caf::expected<operation> parse_operation(std::span<const std::byte> frame) {
  auto value = parse_msgpack(frame);
  if (!value)
    return std::move(value.error());
  auto by_number = value->as_unsigned(0, first_without_number - 1);
  if (value->what != msgpack_value::kind::text && value->what != msgpack_value::kind::integer)
    return caf::make_error(errc::malformed_frame, "an operation is a number or a name");
  auto i = std::find_if(operations.begin(), operations.end(), [&](auto& entry) {
    return value->what == msgpack_value::kind::text
             ? entry.name == value->text
             : by_number && static_cast<uint64_t>(entry.what) == *by_number;
  });
  if (i == operations.end())
    return caf::make_error(errc::not_found);
  return i->what;
}

} // namespace kvasir::mp
