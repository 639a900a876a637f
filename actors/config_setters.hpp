// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/config_options.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// What the options of both tables do with their text. Each returns what is wrong with it, empty if
/// nothing is, as `config_option::apply` does. Threading: pure functions.
namespace kvasir::config_setters {

inline constexpr unsigned max_default_io_threads = 8;

std::string host(config_draft& draft, std::string_view text);

/// Of a port that may be `off`.
std::string port(std::optional<uint16_t>& target, std::string_view text);
std::string lm_port(config_draft& draft, std::string_view text);
std::string mp_port(config_draft& draft, std::string_view text);
std::string http_port(config_draft& draft, std::string_view text);
std::string engine_socket(config_draft& draft, std::string_view text);
std::string unserved_port(config_draft& draft, std::string_view text);

std::string pool_bytes(config_draft& draft, std::optional<uint64_t> bytes);
std::string pool_size(config_draft& draft, std::string_view text);
std::string shm(config_draft& draft, std::string_view text);
std::string shm_name(config_draft& draft, std::string_view text);
std::string max_object_size(config_draft& draft, std::string_view text);
std::string eviction(config_draft& draft, std::string_view text);
std::string checksum(config_draft& draft, std::string_view text);
std::string io_threads(config_draft& draft, std::string_view text);
std::string max_connections(config_draft& draft, std::string_view text);

std::string chunk_size(config_draft& draft, std::string_view text);
std::string duration(std::chrono::milliseconds& target, std::string_view text);
std::string token_hash(config_draft& draft, std::string_view text);
std::string event_history(config_draft& draft, std::string_view text);

std::string log_level(config_draft& draft, std::string_view text);
std::string log_format(config_draft& draft, std::string_view text);

} // namespace kvasir::config_setters
