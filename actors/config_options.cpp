#include "actors/config_options.hpp"

#include "actors/number_text.hpp"
#include "backends/slot_allocator.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <thread>

namespace kvasir {

namespace {

constexpr uint64_t gib = 1ull << 30;
constexpr uint64_t max_pool_bytes = 16384 * gib; // What the slot allocator's books can hold.
constexpr uint64_t max_lm_length = std::numeric_limits<int32_t>::max();
constexpr unsigned max_io_threads = 64;
constexpr unsigned max_default_io_threads = 8;
constexpr uint32_t max_max_connections = 1'000'000;
constexpr std::string_view segment_prefix = "lmcache_l1_pool_"; // What LMCache's server adds.

// -- what the options do ----------------------------------------------------------------

std::string set_host(config_draft& draft, std::string_view text) {
  auto bad = [](char c) {
    return c <= ' ' || c == 0x7f;
  };
  if (text.empty() || std::any_of(text.begin(), text.end(), bad))
    return "not a host name or address";
  draft.config.host = text;
  return {};
}

std::string set_port(std::optional<uint16_t>& port, std::string_view text) {
  if (text == "off") {
    port.reset();
    return {};
  }
  auto number = parse_number<uint16_t>(text);
  if (!number)
    return "not a port: say 0 to 65535 (0 = any free one), or off";
  port = number;
  return {};
}

std::string show_port(const std::optional<uint16_t>& port) {
  return port ? std::to_string(*port) : "off";
}

std::string set_lm_port(config_draft& draft, std::string_view text) {
  return set_port(draft.config.lm_port, text);
}

std::string set_http_port(config_draft& draft, std::string_view text) {
  return set_port(draft.config.http_port, text);
}

std::string set_unserved(config_draft&, std::string_view text) {
  return text == "off" ? "" : "not served by this version: only off is possible";
}

std::string set_mp_port(config_draft& draft, std::string_view text) {
  return set_port(draft.config.mp_port, text);
}

std::string set_pool_bytes(config_draft& draft, std::optional<uint64_t> bytes) {
  constexpr auto page = slot_allocator::page_bytes;
  if (!bytes)
    return "not a size: say e.g. 1GiB, 512MiB, 4GB or a number of bytes";
  if (*bytes < page)
    return "a pool of " + std::to_string(*bytes) + " bytes is smaller than one page of "
           + std::to_string(page);
  if (*bytes > max_pool_bytes)
    return "a pool of " + std::to_string(*bytes) + " bytes is larger than the limit of "
           + std::to_string(max_pool_bytes);
  draft.config.pool_bytes = *bytes / page * page;
  if (draft.config.pool_bytes != *bytes)
    draft.notices.push_back("the pool is rounded down to whole pages: "
                            + std::to_string(draft.config.pool_bytes) + " of "
                            + std::to_string(*bytes) + " bytes");
  return {};
}

std::string set_pool_size(config_draft& draft, std::string_view text) {
  return set_pool_bytes(draft, parse_size(text));
}

std::string set_pool_gb(config_draft& draft, std::string_view text) {
  // LMCache's gigabyte has 2^30 bytes.
  auto number = parse_number<double>(text);
  auto bytes = number ? scaled_size(*number, gib) : std::nullopt;
  return bytes ? set_pool_bytes(draft, bytes) : "not a number of gigabytes";
}

std::string set_shm(config_draft& draft, std::string_view text) {
  if (text == "auto")
    draft.config.shm = shm_pool::sharing::automatic;
  else if (text == "on")
    draft.config.shm = shm_pool::sharing::on;
  else if (text == "off")
    draft.config.shm = shm_pool::sharing::off;
  else
    return "say auto, on or off";
  return {};
}

std::string show_shm(const node_config& config) {
  switch (config.shm) {
    case shm_pool::sharing::automatic:
      return "auto";
    case shm_pool::sharing::on:
      return "on";
    case shm_pool::sharing::off:
      return "off";
  }
  return "auto";
}

std::string set_shm_name(config_draft& draft, std::string_view text) {
  draft.config.shm_name.clear();
  if (text.empty())
    return {};
  // Compat: as LMCache's server names its segment.
  std::string name{text.substr(text.front() == '/' ? 1 : 0)};
  if (name.rfind(segment_prefix, 0) != 0)
    name.insert(0, segment_prefix);
  auto bad = [](char c) {
    return c <= ' ' || c == 0x7f || c == '/';
  };
  if (name == segment_prefix || name.size() > 200 || std::any_of(name.begin(), name.end(), bad))
    return "not a name for a file in /dev/shm";
  draft.config.shm_name = name;
  return {};
}

std::string set_max_object_size(config_draft& draft, std::string_view text) {
  auto bytes = parse_size(text);
  if (!bytes || *bytes == 0)
    return "not a size: say e.g. 256MiB or a number of bytes";
  draft.config.max_object_bytes = *bytes;
  return {};
}

std::string set_eviction(config_draft& draft, std::string_view text) {
  // Compat: LMCache writes capital letters.
  if (text == "s3fifo" || text == "S3FIFO")
    draft.config.eviction = "s3fifo";
  else if (text == "lru" || text == "LRU")
    draft.config.eviction = "lru";
  else
    return "unknown eviction policy: say s3fifo or lru";
  return {};
}

std::string set_checksum(config_draft& draft, std::string_view text) {
  if (text != "on" && text != "off")
    return "say on or off";
  draft.config.checksum = text == "on";
  return {};
}

std::string set_io_threads(config_draft& draft, std::string_view text) {
  auto number = parse_number<unsigned>(text);
  if (!number || *number > max_io_threads)
    return "say 1 to " + std::to_string(max_io_threads) + ", or 0 for one per core (at most "
           + std::to_string(max_default_io_threads) + ")";
  draft.config.io_threads = *number;
  return {};
}

std::string set_max_connections(config_draft& draft, std::string_view text) {
  auto number = parse_number<uint32_t>(text);
  if (!number || *number == 0 || *number > max_max_connections)
    return "say 1 to " + std::to_string(max_max_connections);
  draft.config.max_connections = *number;
  return {};
}

std::string set_admin_token_file(config_draft& draft, std::string_view text) {
  draft.config.admin_token_file = text;
  return {};
}

std::string set_log_level(config_draft& draft, std::string_view text) {
  return log::parse(text, draft.config.log_level) ? "" : "say debug, info, warn, error or off";
}

std::string set_log_format(config_draft& draft, std::string_view text) {
  return log::parse(text, draft.config.log_format) ? "" : "say text or json";
}

std::string set_chunk_size(config_draft& draft, std::string_view text) {
  auto number = parse_number<uint32_t>(text);
  if (!number || *number == 0 || *number > 65536)
    return "not a number of tokens, 1 to 65536";
  draft.config.chunk_size = *number;
  return {};
}

std::string set_duration(std::chrono::milliseconds& target, std::string_view text) {
  auto scale = 1000.0;
  if (text.ends_with("ms"))
    scale = 1, text.remove_suffix(2);
  else if (text.ends_with("s"))
    text.remove_suffix(1);
  auto number = parse_number<double>(text);
  if (!number || *number <= 0 || *number > 1e7)
    return "not a duration: say e.g. 30s or 500ms";
  target = std::chrono::milliseconds{static_cast<int64_t>(*number * scale)};
  return {};
}

std::string show_duration(std::chrono::milliseconds value) {
  return value.count() % 1000 == 0 ? std::to_string(value.count() / 1000) + "s"
                                   : std::to_string(value.count()) + "ms";
}

std::string set_device(config_draft&, std::string_view text) {
  return text == "cpu" ? "" : "only the device cpu is supported";
}

// -- the table --------------------------------------------------------------------------

using config = const node_config&;

constexpr std::array options{
  config_option{"host", "HOST", "Address or name to listen on", "host", set_host,
                [](config c) {
                  return c.host;
                }},
  config_option{"lm-port", "PORT|off", "Port of lm://; 0: any free one", "lm-port", set_lm_port,
                [](config c) {
                  return show_port(c.lm_port);
                }},
  config_option{"http-port", "PORT|off", "Port of health, metrics and administration",
                "http-port", set_http_port,
                [](config c) {
                  return show_port(c.http_port);
                }},
  config_option{"mp-port", "PORT|off", "Port of LMCache's multiprocess protocol (ZeroMQ)",
                "mp-port", set_mp_port,
                [](config c) {
                  return show_port(c.mp_port);
                }},
  config_option{"cluster-port", "off", "Not served by this version", "cluster-port",
                set_unserved,
                [](config) {
                  return std::string{"off"};
                }},
  config_option{"pool-size", "SIZE", "Memory for payload, e.g. 1GiB, 512MiB, 4GB", "pool-size",
                set_pool_size,
                [](config c) {
                  return size_text(c.pool_bytes);
                }},
  config_option{"shm", "auto|on|off", "Keep the pool in shared memory; auto: if possible",
                "shm", set_shm, show_shm},
  config_option{"shm-name", "NAME", "Name of the segment in /dev/shm; default: one per process",
                "shm-name", set_shm_name,
                [](config c) {
                  return c.shm_name;
                }},
  config_option{"max-object-size", "SIZE",
                "Larger objects are dropped; default: a quarter of the pool, at most 1GiB",
                "max-object-size", set_max_object_size,
                [](config c) {
                  return size_text(c.max_object_bytes);
                }},
  config_option{"eviction", "s3fifo|lru", "Which object gives way when the pool is full",
                "eviction", set_eviction,
                [](config c) {
                  return c.eviction;
                }},
  config_option{"checksum", "on|off", "Verify values between arrival and departure", "checksum",
                set_checksum,
                [](config c) {
                  return std::string{c.checksum ? "on" : "off"};
                }},
  config_option{"io-threads", "N", "Threads that serve lm://; 0: one per core, at most 8",
                "io-threads", set_io_threads,
                [](config c) {
                  return std::to_string(c.io_threads);
                }},
  config_option{"max-connections", "N", "More lm:// connections than these are closed at once",
                "max-connections", set_max_connections,
                [](config c) {
                  return std::to_string(c.max_connections);
                }},
  config_option{"admin-token-file", "FILE",
                "HTTP requests that change something need the token in FILE; without it they "
                "must come from this host",
                "admin-token-file", set_admin_token_file,
                [](config c) {
                  return c.admin_token_file;
                }},
  config_option{"log-level", "LEVEL", "Lowest level written: debug, info, warn, error, off",
                "log-level", set_log_level,
                [](config c) {
                  return std::string{log::to_string(c.log_level)};
                }},
  config_option{"log-format", "text|json", "Form of the log on standard error", "log-format",
                set_log_format,
                [](config c) {
                  return std::string{log::to_string(c.log_format)};
                }},
  config_option{"chunk-size", "N", "Tokens per chunk over MP", "chunk-size", set_chunk_size,
                [](config c) {
                  return std::to_string(c.chunk_size);
                }},
  config_option{
    "write-ttl", "TIME", "How long an engine may take to write its slots", "write-ttl",
    [](config_draft& d, std::string_view t) { return set_duration(d.config.write_ttl, t); },
    [](config c) {
      return show_duration(c.write_ttl);
    }},
  config_option{
    "read-ttl", "TIME", "How long a lookup holds what it found", "read-ttl",
    [](config_draft& d, std::string_view t) { return set_duration(d.config.read_ttl, t); },
    [](config c) {
      return show_duration(c.read_ttl);
    }},
  config_option{
    "reap-timeout", "TIME", "Silence after which an engine counts as gone", "reap-timeout",
    [](config_draft& d, std::string_view t) { return set_duration(d.config.reap_timeout, t); },
    [](config c) {
      return show_duration(c.reap_timeout);
    }},

  // What `lmcache_server` and `lmcache server` are started with.
  config_option{"port", "PORT", "As lmcache_server: --lm-port; otherwise as --mp-port",
                "mp-port", set_mp_port, nullptr},
  config_option{"device", "cpu", "Where values are kept; only cpu", "device", set_device,
                nullptr},
  config_option{"capacity", "GB", "Pool size in units of 2^30 bytes", "pool-size", set_pool_gb,
                nullptr},
  config_option{"l1-size-gb", "GB", "Pool size in units of 2^30 bytes", "pool-size",
                set_pool_gb, nullptr},
  config_option{"eviction-policy", "LRU|S3FIFO", "As --eviction", "eviction", set_eviction,
                nullptr},
};

} // namespace

std::span<const config_option> config_options() {
  return options;
}

std::string complete_config(node_config& c) {
  auto cores = std::max(1u, std::thread::hardware_concurrency());
  if (c.io_threads == 0)
    c.io_threads = std::min(cores, max_default_io_threads);
  if (c.max_object_bytes == 0)
    c.max_object_bytes = std::min(c.pool_bytes / 4, gib);
  auto number = [](uint64_t n) {
    return std::to_string(n);
  };
  if (c.max_object_bytes > max_lm_length)
    return "max-object-size " + number(c.max_object_bytes) + " is larger than "
           + number(max_lm_length) + ", the longest object of lm://";
  if (c.max_object_bytes > c.pool_bytes / 2)
    return "max-object-size " + number(c.max_object_bytes) + " is larger than half the pool of "
           + number(c.pool_bytes);
  if (!c.lm_port && !c.http_port && !c.mp_port)
    return "lm-port, mp-port and http-port are all off: there is nothing to serve";
  if (c.lm_port && c.lm_port == c.http_port && *c.lm_port != 0)
    return "lm-port and http-port are both " + number(*c.lm_port);
  if (c.shm == shm_pool::sharing::off && !c.shm_name.empty())
    return "shm-name " + c.shm_name + " contradicts shm off";
  return {};
}

std::vector<std::pair<std::string, std::string>> describe_config(const node_config& c) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& option : options)
    if (option.show != nullptr)
      result.emplace_back(option.name, option.show(c));
  return result;
}

} // namespace kvasir
