#include "messages/mp_protocol.hpp"

#include "messages/lm_unicode.hpp"
#include "messages/mp_fields.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace kvasir::mp {

namespace {

using kind = msgpack_value::kind;
constexpr size_t max_text_bytes = 4096;

/// Reads one argument after the other. The first that is wrong is remembered.
class argument_reader {
public:
  explicit argument_reader(std::span<const std::span<const std::byte>> frames)
    : frames_(frames) {}

  cache_key key() {
    auto result = parse_cache_key(next());
    if (!result) {
      fail(std::move(result.error()));
      return {};
    }
    return std::move(*result);
  }

  /// Compat: a plain number may be any integer, or a bool.
  uint64_t bits() {
    auto value = parsed();
    if (value.what == kind::boolean)
      return value.boolean ? 1 : 0;
    if (value.what != kind::integer)
      wrong("a number");
    return value.integer;
  }

  uint64_t number(uint64_t lowest, uint64_t highest) {
    auto value = parsed().as_unsigned(lowest, highest);
    if (!value)
      wrong("a number in its range");
    return value.value_or(lowest);
  }

  std::optional<uint64_t> bits_or_nil() {
    auto value = parsed();
    if (value.what == kind::nil)
      return std::nullopt;
    if (value.what != kind::integer)
      wrong("a number or nil");
    return value.integer;
  }

  /// Compat: any value is taken for true or false, as Python does.
  bool truth() {
    auto value = parsed();
    switch (value.what) {
      case kind::nil:
        return false;
      case kind::boolean:
        return value.boolean;
      case kind::integer:
        return value.integer != 0;
      case kind::real:
        return value.real != 0;
      case kind::text:
        return !value.text.empty();
      case kind::binary:
        return !value.binary.empty();
      case kind::integers:
        return !value.integers.empty();
      case kind::map:
        return !value.fields.empty();
      case kind::other:
        return true;
    }
    return true;
  }

  std::string text() {
    auto value = parsed();
    if (value.what != kind::text || value.text.size() > max_text_bytes
        || !lm::is_utf8(value.text))
      wrong("a text");
    return std::string{value.text.substr(0, max_text_bytes)};
  }

  /// Compat: a float may be written as an integer.
  double real() {
    auto value = parsed();
    if (value.what == kind::integer)
      return value.negative ? static_cast<double>(static_cast<int64_t>(value.integer))
                            : static_cast<double>(value.integer);
    if (value.what != kind::real || !std::isfinite(value.real))
      wrong("a finite number");
    return value.real;
  }

  std::span<const std::byte> binary() {
    auto value = parsed();
    if (value.what != kind::binary)
      wrong("bytes");
    return value.binary;
  }

  /// Only that it is a value.
  void any() { parsed(); }

  register_request registration() {
    constexpr uint64_t most = std::numeric_limits<uint32_t>::max();
    auto map = parsed();
    register_request result;
    if (map.what != kind::map) {
      wrong("a map");
      return result;
    }
    field_reader fields{map};
    auto count = [&](std::string_view name) {
      return static_cast<uint32_t>(fields.unsigned_in(name, 1, most));
    };
    result.instance_id = fields.bits("instance_id");
    result.model_name = fields.text("model_name", 1024);
    if (result.model_name.empty() || result.model_name.find('@') != std::string::npos)
      fields.refuse("model_name");
    result.world_size = static_cast<uint32_t>(fields.unsigned_in("world_size", 1, 255));
    result.block_size = count("block_size");
    result.num_layers = count("num_layers");
    result.hidden_dim_size = count("hidden_dim_size");
    result.dtype = fields.text("dtype_str", 64);
    result.single_plane = fields.boolean("use_mla");
    if (auto slots = fields.unsigned_in("num_physical_slots", 1, most, 0); slots != 0)
      result.num_physical_slots = static_cast<uint32_t>(slots);
    if (!fields)
      fail(fields.error());
    return result;
  }

  /// @returns the request, or the first thing that was wrong with it.
  caf::expected<request> finish(request result) {
    if (at_ != frames_.size())
      return caf::make_error(errc::malformed_frame, "another number of arguments");
    if (error_)
      return std::move(error_);
    return result;
  }

private:
  std::span<const std::byte> next() {
    auto index = at_++;
    return index < frames_.size() ? frames_[index] : std::span<const std::byte>{};
  }

  msgpack_value parsed() {
    auto result = parse_msgpack(next());
    if (!result) {
      fail(std::move(result.error()));
      return {};
    }
    return std::move(*result);
  }

  void wrong(const char* what) {
    fail(caf::make_error(errc::invalid_argument,
                         "argument " + std::to_string(at_) + " is not " + what));
  }

  void fail(caf::error why) {
    if (!error_)
      error_ = std::move(why);
  }

  std::span<const std::span<const std::byte>> frames_;
  size_t at_ = 0;
  caf::error error_;
};

/// The arguments are read in the order of these braces.
template <class Request>
Request transfer(argument_reader& arguments) {
  return Request{arguments.key(), arguments.bits()};
}

} // namespace

caf::expected<kv_layout> register_request::layout(uint32_t chunk_size) const {
  auto type = tensor_dtype_from_name(dtype);
  if (!type)
    return caf::make_error(errc::invalid_argument, "unknown dtype " + dtype);
  return make_kv_layout({*type, single_plane, num_layers,
                         num_physical_slots.value_or(chunk_size), hidden_dim_size, block_size});
}

caf::expected<request> parse_request(operation what,
                                     std::span<const std::span<const std::byte>> frames) {
  argument_reader arguments{frames};
  switch (what) {
    case operation::get_chunk_size:
      return arguments.finish(get_chunk_size_request{});
    case operation::get_experimental:
      return arguments.finish(get_experimental_request{});
    case operation::noop:
      return arguments.finish(noop_request{});
    case operation::ping:
      return arguments.finish(ping_request{arguments.bits_or_nil()});
    case operation::clear:
      return arguments.finish(clear_request{arguments.truth()});
    case operation::lookup: {
      lookup_request result{arguments.key()};
      arguments.any(); // The tensor parallel size, which the key has already.
      return arguments.finish(std::move(result));
    }
    case operation::free_lookup_locks: {
      free_lookup_locks_request result{arguments.key()};
      arguments.any();
      return arguments.finish(std::move(result));
    }
    case operation::query_prefetch_status:
      return arguments.finish(query_prefetch_status_request{arguments.text()});
    case operation::wait_prefetch_status:
      return arguments.finish(wait_prefetch_status_request{arguments.text(), arguments.real()});
    case operation::end_session:
      return arguments.finish(end_session_request{arguments.text()});
    case operation::report_block_allocation: {
      arguments.any();
      arguments.any();
      arguments.any();
      return arguments.finish(report_block_allocation_request{});
    }
    case operation::subscribe_kv_events: {
      subscribe_kv_events_request result{arguments.bits(), arguments.text(), arguments.bits(),
                                         static_cast<uint32_t>(arguments.number(1, 1024))};
      return arguments.finish(std::move(result));
    }
    case operation::register_kv_cache_engine_driven_context:
      return arguments.finish(arguments.registration());
    case operation::unregister_kv_cache_engine_driven_context:
      return arguments.finish(unregister_request{arguments.bits()});
    case operation::prepare_store:
      return arguments.finish(transfer<prepare_store_request>(arguments));
    case operation::commit_store: {
      commit_store_request result{arguments.key(), arguments.bits(), arguments.binary()};
      return arguments.finish(std::move(result));
    }
    case operation::prepare_retrieve:
      return arguments.finish(transfer<prepare_retrieve_request>(arguments));
    case operation::commit_retrieve:
      return arguments.finish(transfer<commit_retrieve_request>(arguments));
    case operation::register_kv_cache:
    case operation::unregister_kv_cache:
    case operation::register_q_cache:
    case operation::unregister_q_cache:
    case operation::store_q:
    case operation::store:
    case operation::retrieve:
    case operation::cb_register_rope:
    case operation::cb_unregister_rope:
    case operation::cb_retrieve_pre_computed:
    case operation::cb_unified_lookup:
    case operation::p2p_lookup_and_lock:
    case operation::p2p_query_lookup_results:
    case operation::p2p_unlock_objects:
    case operation::cb_protocol_handshake:
    case operation::server_module_call:
    case operation::cb_reorder_plan:
      return caf::make_error(errc::not_found, std::string{to_string(what)});
  }
  return caf::make_error(errc::not_found);
}

} // namespace kvasir::mp
