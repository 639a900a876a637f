#include "actors/config_options.hpp"
#include "actors/config_setters.hpp"
#include "actors/number_text.hpp"
#include "backends/slot_allocator.hpp"

#include <array>

namespace kvasir {

namespace {

namespace set = config_setters;

constexpr uint64_t gib = 1ull << 30;

std::string set_pool_gb(config_draft& draft, std::string_view text) {
  // LMCache's gigabyte has 2^30 bytes.
  auto number = parse_number<double>(text);
  auto bytes = number ? scaled_size(*number, gib) : std::nullopt;
  return bytes ? set::pool_bytes(draft, bytes) : "not a number of gigabytes";
}

std::string set_device(config_draft&, std::string_view text) {
  return text == "cpu" ? "" : "only the device cpu is supported";
}

std::string set_seconds(std::chrono::milliseconds& target, std::string_view text) {
  return set::duration(target, std::string{text} + "s").empty()
           ? ""
           : "not a number of seconds, more than 0 and at most a day";
}

std::string set_transfer_mode(config_draft& draft, std::string_view text) {
  if (text == "lmcache_driven")
    return "kvasird serves engine-driven transfer only: start it with engine_driven, and the "
           "engines with LMCACHE_MP_TRANSFER_MODE=engine_driven";
  if (text == "auto")
    draft.notices.emplace_back("--supported-transfer-mode auto: only engine-driven transfer is "
                               "served");
  return text == "engine_driven" || text == "auto" ? "" : "say engine_driven";
}

std::string set_align_bytes(config_draft&, std::string_view text) {
  auto number = parse_number<uint64_t>(text);
  if (number && *number > 0 && slot_allocator::page_bytes % *number == 0)
    return {};
  return "slots are aligned to " + std::to_string(slot_allocator::page_bytes)
         + " bytes, and thereby to its divisors only";
}

std::string set_http_host(config_draft& draft, std::string_view text) {
  draft.http_host = text;
  return text.empty() ? "not a host name or address" : "";
}

std::string set_transport(config_draft&, std::string_view text) {
  return text == "zmq" ? "" : "only the transport zmq is served";
}

std::string set_engine_type(config_draft&, std::string_view text) {
  return text == "default" ? "" : "only prefixes are cached: say default";
}

std::string check_number(config_draft&, std::string_view text) {
  auto number = parse_number<double>(text);
  return number && *number >= 0 ? "" : "not a number";
}

std::string accept(config_draft&, std::string_view) {
  return {};
}

constexpr std::string_view help_no_effect = "Accepted; has no effect";
constexpr std::string_view lazy = "the pool grows in the background and is served meanwhile";
constexpr std::string_view threads = "see --io-threads";
constexpr std::string_view on_demand = "objects give way when their room is asked for";
constexpr std::string_view liveness = "see --reap-timeout";

constexpr std::array options{
  config_option{"port", "PORT", "As lmcache_server: --lm-port; otherwise as --mp-port",
                "mp-port", set::mp_port, nullptr},
  config_option{"device", "cpu", "Where values are kept; only cpu", "device", set_device,
                nullptr},
  config_option{"capacity", "GB", "Pool size in units of 2^30 bytes", "pool-size", set_pool_gb,
                nullptr},
  config_option{"l1-size-gb", "GB", "Pool size in units of 2^30 bytes", "pool-size",
                set_pool_gb, nullptr},
  config_option{"eviction-policy", "LRU|S3FIFO", "As --eviction", "eviction", set::eviction,
                nullptr},
  config_option{"hash-algorithm", "blake3|sha256_cbor", "As --token-hash", "token-hash",
                set::token_hash, nullptr},
  config_option{"supported-transfer-mode", "engine_driven", "The one that is served",
                "supported-transfer-mode", set_transfer_mode, nullptr},
  config_option{
    "l1-write-ttl-seconds", "N", "As --write-ttl", "write-ttl",
    [](config_draft& d, std::string_view t) { return set_seconds(d.config.write_ttl, t); },
    nullptr},
  config_option{
    "l1-read-ttl-seconds", "N", "As --read-ttl", "read-ttl",
    [](config_draft& d, std::string_view t) { return set_seconds(d.config.read_ttl, t); },
    nullptr},
  config_option{
    "worker-reap-timeout-seconds", "N", "As --reap-timeout", "reap-timeout",
    [](config_draft& d, std::string_view t) { return set_seconds(d.config.reap_timeout, t); },
    nullptr},
  config_option{"kv-event-log-size", "N", "As --event-history", "event-history",
                set::event_history, nullptr},
  config_option{"http-host", "HOST", "Must be that of --host", "http-host", set_http_host,
                nullptr},
  config_option{"transport", "zmq", "The one that is served", "transport", set_transport,
                nullptr},
  config_option{"engine-type", "default", "The one that is served", "engine-type",
                set_engine_type, nullptr},
  config_option{"l1-align-bytes", "4096", "Alignment of slots", "l1-align-bytes",
                set_align_bytes, nullptr},
  config_option{"l1-use-lazy", "", help_no_effect, "l1-use-lazy", accept, nullptr, lazy},
  config_option{"no-l1-use-lazy", "", help_no_effect, "l1-use-lazy", accept, nullptr, lazy},
  config_option{"l1-init-size-gb", "GB", help_no_effect, "l1-init-size-gb", check_number,
                nullptr, lazy},
  config_option{"max-workers", "N", help_no_effect, "max-workers", check_number, nullptr,
                threads},
  config_option{"max-gpu-workers", "N", help_no_effect, "max-gpu-workers", check_number,
                nullptr, threads},
  config_option{"max-cpu-workers", "N", help_no_effect, "max-cpu-workers", check_number,
                nullptr, threads},
  config_option{"session-ttl-seconds", "N", help_no_effect, "session-ttl-seconds", check_number,
                nullptr, "idle sessions end by a limit of kvasird's"},
  config_option{"worker-registration-grace-seconds", "N", help_no_effect,
                "worker-registration-grace-seconds", check_number, nullptr, liveness},
  config_option{"eviction-trigger-watermark", "N", help_no_effect, "eviction-trigger-watermark",
                check_number, nullptr, on_demand},
  config_option{"eviction-ratio", "N", help_no_effect, "eviction-ratio", check_number, nullptr,
                on_demand},
};

} // namespace

std::span<const config_option> lmcache_options() {
  return options;
}

} // namespace kvasir
