#include "actors/config_options.hpp"

#include "actors/config_setters.hpp"
#include "actors/number_text.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <thread>

namespace kvasir {

namespace {

namespace set = config_setters;

constexpr uint64_t gib = 1ull << 30;
constexpr uint64_t max_lm_length = std::numeric_limits<int32_t>::max();

std::string show_port(const std::optional<uint16_t>& port) {
  return port ? std::to_string(*port) : "off";
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

std::string show_token_hash(const node_config& config) {
  switch (config.token_hash) {
    case mp::token_hash_algorithm::blake3:
      return "blake3";
    case mp::token_hash_algorithm::sha256_cbor:
      return "sha256_cbor";
  }
  return "blake3";
}

using config = const node_config&;

constexpr std::array options{
  config_option{"host", "HOST", "Address or name to listen on", "host", set::host,
                [](config c) {
                  return c.host;
                }},
  config_option{"lm-port", "PORT|off", "Port of lm://; 0: any free one", "lm-port",
                set::lm_port,
                [](config c) {
                  return show_port(c.lm_port);
                }},
  config_option{"mp-port", "PORT|off", "Port of LMCache's multiprocess protocol (ZeroMQ)",
                "mp-port", set::mp_port,
                [](config c) {
                  return show_port(c.mp_port);
                }},
  config_option{"http-port", "PORT|off", "Port of health, metrics and administration",
                "http-port", set::http_port,
                [](config c) {
                  return show_port(c.http_port);
                }},
  config_option{"cluster-port", "off", "Not served by this version", "cluster-port",
                set::unserved_port,
                [](config) {
                  return std::string{"off"};
                }},
  config_option{"engine-socket", "PATH|off",
                "Unix socket where engines of this host join, to share the pool without a copy",
                "engine-socket", set::engine_socket,
                [](config c) {
                  return c.engine_socket.empty() ? std::string{"off"} : c.engine_socket;
                }},
  config_option{"pool-size", "SIZE", "Memory for payload, e.g. 1GiB, 512MiB, 4GB", "pool-size",
                set::pool_size,
                [](config c) {
                  return size_text(c.pool_bytes);
                }},
  config_option{"shm", "auto|on|off", "Keep the pool in shared memory; auto: if possible",
                "shm", set::shm, show_shm},
  config_option{"shm-name", "NAME", "Name of the segment in /dev/shm; default: one per process",
                "shm-name", set::shm_name,
                [](config c) {
                  return c.shm_name;
                }},
  config_option{"max-object-size", "SIZE",
                "Larger objects are dropped; default: a quarter of the pool, at most 1GiB",
                "max-object-size", set::max_object_size,
                [](config c) {
                  return size_text(c.max_object_bytes);
                }},
  config_option{"eviction", "s3fifo|lru", "Which object gives way when the pool is full",
                "eviction", set::eviction,
                [](config c) {
                  return c.eviction;
                }},
  config_option{"checksum", "on|off", "Verify values between arrival and departure", "checksum",
                set::checksum,
                [](config c) {
                  return std::string{c.checksum ? "on" : "off"};
                }},
  config_option{"io-threads", "N", "Threads that serve lm://; 0: one per core, at most 8",
                "io-threads", set::io_threads,
                [](config c) {
                  return std::to_string(c.io_threads);
                }},
  config_option{"max-connections", "N", "More lm:// connections than these are closed at once",
                "max-connections", set::max_connections,
                [](config c) {
                  return std::to_string(c.max_connections);
                }},
  config_option{"chunk-size", "N", "Tokens per chunk over MP", "chunk-size", set::chunk_size,
                [](config c) {
                  return std::to_string(c.chunk_size);
                }},
  config_option{
    "write-ttl", "TIME", "How long an engine may take to write its slots, e.g. 600s, 10m",
    "write-ttl",
    [](config_draft& d, std::string_view t) { return set::duration(d.config.write_ttl, t); },
    [](config c) {
      return duration_text(c.write_ttl);
    }},
  config_option{
    "read-ttl", "TIME", "How long a lookup holds what it found", "read-ttl",
    [](config_draft& d, std::string_view t) { return set::duration(d.config.read_ttl, t); },
    [](config c) {
      return duration_text(c.read_ttl);
    }},
  config_option{
    "reap-timeout", "TIME", "Silence after which an engine counts as gone", "reap-timeout",
    [](config_draft& d, std::string_view t) { return set::duration(d.config.reap_timeout, t); },
    [](config c) {
      return duration_text(c.reap_timeout);
    }},
  config_option{"token-hash", "blake3|sha256_cbor", "How the chunks of a prompt are named",
                "token-hash", set::token_hash, show_token_hash},
  config_option{"token-hash-seed", "TEXT",
                "PYTHONHASHSEED of the engines, for sha256_cbor; default: random",
                "token-hash-seed",
                [](config_draft& d, std::string_view t) {
                  d.config.token_hash_seed = t;
                  return std::string{};
                },
                [](config c) {
                  return c.token_hash_seed;
                }},
  config_option{"event-history", "N", "KV events kept for subscribers that read late",
                "event-history", set::event_history,
                [](config c) {
                  return std::to_string(c.event_history);
                }},
  config_option{"admin-token-file", "FILE",
                "HTTP requests that change something need the token in FILE; without it they "
                "must come from this host",
                "admin-token-file",
                [](config_draft& d, std::string_view t) {
                  d.config.admin_token_file = t;
                  return std::string{};
                },
                [](config c) {
                  return c.admin_token_file;
                }},
  config_option{"log-level", "LEVEL", "Lowest level written: debug, info, warn, error, off",
                "log-level", set::log_level,
                [](config c) {
                  return std::string{log::to_string(c.log_level)};
                }},
  config_option{"log-format", "text|json", "Form of the log on standard error", "log-format",
                set::log_format,
                [](config c) {
                  return std::string{log::to_string(c.log_format)};
                }},
};

} // namespace

std::span<const config_option> config_options() {
  return options;
}

std::string complete_config(node_config& c) {
  auto cores = std::max(1u, std::thread::hardware_concurrency());
  if (c.io_threads == 0)
    c.io_threads = std::min(cores, set::max_default_io_threads);
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
  if (!c.lm_port && !c.http_port && !c.mp_port && c.engine_socket.empty())
    return "lm-port, mp-port, http-port and engine-socket are all off: there is nothing to serve";
  auto same = [](const std::optional<uint16_t>& a, const std::optional<uint16_t>& b) {
    return a && a == b && *a != 0;
  };
  if (same(c.lm_port, c.http_port))
    return "lm-port and http-port are both " + number(*c.lm_port);
  if (same(c.lm_port, c.mp_port))
    return "lm-port and mp-port are both " + number(*c.lm_port);
  if (same(c.mp_port, c.http_port))
    return "mp-port and http-port are both " + number(*c.mp_port);
  if (c.shm == shm_pool::sharing::off && !c.shm_name.empty())
    return "shm-name " + c.shm_name + " contradicts shm off";
  if (!c.token_hash_seed.empty() && c.token_hash != mp::token_hash_algorithm::sha256_cbor)
    return "token-hash-seed contradicts token-hash blake3, which has no seed";
  return {};
}

std::vector<std::pair<std::string, std::string>> describe_config(const node_config& c) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& option : options)
    result.emplace_back(option.name, option.show(c));
  return result;
}

} // namespace kvasir
