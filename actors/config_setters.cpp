#include "actors/config_setters.hpp"

#include "actors/number_text.hpp"
#include "backends/slot_allocator.hpp"

#include <algorithm>

namespace kvasir::config_setters {

namespace {

constexpr uint64_t max_pool_bytes = 16384ull << 30; // What the slot allocator's books can hold.
constexpr unsigned max_io_threads = 64;
constexpr uint32_t max_max_connections = 1'000'000;
constexpr uint32_t max_chunk_size = 65'536;
constexpr uint32_t max_event_history = 16'777'216;
constexpr size_t max_socket_path = 107; // What a sockaddr_un holds.
constexpr std::string_view segment_prefix = "lmcache_l1_pool_"; // What LMCache's server adds.

} // namespace

std::string host(config_draft& draft, std::string_view text) {
  auto bad = [](char c) {
    return c <= ' ' || c == 0x7f;
  };
  if (text.empty() || std::any_of(text.begin(), text.end(), bad))
    return "not a host name or address";
  draft.config.host = text;
  return {};
}

std::string port(std::optional<uint16_t>& target, std::string_view text) {
  if (text == "off") {
    target.reset();
    return {};
  }
  auto number = parse_number<uint16_t>(text);
  if (!number)
    return "not a port: say 0 to 65535 (0 = any free one), or off";
  target = number;
  return {};
}

std::string lm_port(config_draft& draft, std::string_view text) {
  return port(draft.config.lm_port, text);
}

std::string http_port(config_draft& draft, std::string_view text) {
  return port(draft.config.http_port, text);
}

std::string engine_socket(config_draft& draft, std::string_view text) {
  if (text == "off") {
    draft.config.engine_socket.clear();
    return {};
  }
  if (text.empty() || text.size() > max_socket_path || text.find('\0') != text.npos)
    return "not a path of 1 to 107 bytes, or off";
  draft.config.engine_socket = text;
  return {};
}

std::string unserved_port(config_draft&, std::string_view text) {
  return text == "off" ? "" : "not served by this version: only off is possible";
}

std::string mp_port(config_draft& draft, std::string_view text) {
  return port(draft.config.mp_port, text);
}

std::string pool_bytes(config_draft& draft, std::optional<uint64_t> bytes) {
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

std::string pool_size(config_draft& draft, std::string_view text) {
  return pool_bytes(draft, parse_size(text));
}

std::string shm(config_draft& draft, std::string_view text) {
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

std::string shm_name(config_draft& draft, std::string_view text) {
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

std::string max_object_size(config_draft& draft, std::string_view text) {
  auto bytes = parse_size(text);
  if (!bytes || *bytes == 0)
    return "not a size: say e.g. 256MiB or a number of bytes";
  draft.config.max_object_bytes = *bytes;
  return {};
}

std::string eviction(config_draft& draft, std::string_view text) {
  // Compat: LMCache writes capital letters.
  if (text == "s3fifo" || text == "S3FIFO")
    draft.config.eviction = "s3fifo";
  else if (text == "lru" || text == "LRU")
    draft.config.eviction = "lru";
  else
    return "unknown eviction policy: say s3fifo or lru";
  return {};
}

std::string checksum(config_draft& draft, std::string_view text) {
  if (text != "on" && text != "off")
    return "say on or off";
  draft.config.checksum = text == "on";
  return {};
}

std::string io_threads(config_draft& draft, std::string_view text) {
  auto number = parse_number<unsigned>(text);
  if (!number || *number > max_io_threads)
    return "say 1 to " + std::to_string(max_io_threads) + ", or 0 for one per core (at most "
           + std::to_string(max_default_io_threads) + ")";
  draft.config.io_threads = *number;
  return {};
}

std::string max_connections(config_draft& draft, std::string_view text) {
  auto number = parse_number<uint32_t>(text);
  if (!number || *number == 0 || *number > max_max_connections)
    return "say 1 to " + std::to_string(max_max_connections);
  draft.config.max_connections = *number;
  return {};
}

std::string log_level(config_draft& draft, std::string_view text) {
  return log::parse(text, draft.config.log_level) ? "" : "say debug, info, warn, error or off";
}

std::string log_format(config_draft& draft, std::string_view text) {
  return log::parse(text, draft.config.log_format) ? "" : "say text or json";
}

std::string chunk_size(config_draft& draft, std::string_view text) {
  auto number = parse_number<uint32_t>(text);
  if (!number || *number == 0 || *number > max_chunk_size)
    return "not a number of tokens: say 1 to " + std::to_string(max_chunk_size);
  draft.config.chunk_size = *number;
  return {};
}

std::string duration(std::chrono::milliseconds& target, std::string_view text) {
  auto value = parse_duration(text);
  if (!value)
    return "not a duration: say e.g. 500ms, 30s, 10m or 2h, at most a day";
  target = *value;
  return {};
}

std::string token_hash(config_draft& draft, std::string_view text) {
  auto algorithm = mp::parse_token_hash_algorithm(text);
  if (!algorithm)
    return algorithm.error().context().get_as<std::string>(0);
  draft.config.token_hash = *algorithm;
  return {};
}

std::string event_history(config_draft& draft, std::string_view text) {
  auto number = parse_number<uint32_t>(text);
  if (!number || *number == 0 || *number > max_event_history)
    return "say 1 to " + std::to_string(max_event_history);
  draft.config.event_history = *number;
  return {};
}

} // namespace kvasir::config_setters
