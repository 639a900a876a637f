// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/log.hpp"
#include "backends/shm_pool.hpp"
#include "messages/token_hash.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace kvasir {

/// The effective configuration of a node: checked, complete, the same that `--print-config`
/// shows. Made in one place (`parse_command_line`); nothing else reads flags, environment or
/// files.
struct node_config {
  std::string host = "127.0.0.1";
  std::optional<uint16_t> lm_port = 65432;  ///< 0: any free port; nothing: not served.
  std::optional<uint16_t> mp_port = 5555;   ///< As above.
  std::optional<uint16_t> http_port = 8080; ///< As above.
  std::string engine_socket;                ///< Path where engines join; empty: not served.
  uint64_t pool_bytes = 1ull << 30;
  shm_pool::sharing shm = shm_pool::sharing::automatic;
  std::string shm_name;          ///< Empty: a name of our own with uid and boot id.
  uint64_t max_object_bytes = 0; ///< 0: a quarter of the pool, at most 1 GiB.
  std::string eviction = "s3fifo";
  bool checksum = true;
  unsigned io_threads = 0; ///< 0: one per core, at most 8.
  uint32_t max_connections = 4096;
  uint32_t chunk_size = 256; ///< Tokens per chunk over MP.
  std::chrono::milliseconds write_ttl{600'000};
  std::chrono::milliseconds read_ttl{300'000};
  std::chrono::milliseconds reap_timeout{30'000};
  mp::token_hash_algorithm token_hash = mp::token_hash_algorithm::blake3;
  std::string token_hash_seed;     ///< Of sha256_cbor; empty: random, so another one each time.
  uint32_t event_history = 32'768; ///< KV events kept for those who read late.
  std::string admin_token_file;    ///< Empty: routes that change something need loopback.
  log::level log_level = log::level::info;
  log::format log_format = log::format::text;
};

} // namespace kvasir
