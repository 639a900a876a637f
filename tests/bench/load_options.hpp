#pragma once

#include "cache_client.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kvasir::bench {

enum class operation { put, get, exist, fill };

/// How much of a reply is compared. `length` is for a server that keeps no values.
enum class verification { length, content };

/// All values of one run together never exceed this, whatever the options say.
inline constexpr std::size_t max_run_bytes = std::size_t{256} << 20;

/// Room for the stamps at both ends of a value and its middle byte (see load_worker.cpp).
inline constexpr std::size_t min_value_size = 64;

struct load_options {
  client_options client;
  operation what = operation::put;
  verification check = verification::content;
  std::size_t value_size = min_value_size;
  std::size_t connection_count = 1;
  std::size_t idle_count = 0; ///< further connections that ask one thing and then stay silent
  std::size_t depth = 1;      ///< requests in flight per connection, EXIST only
  std::size_t max_key_count = 64; ///< per connection
  std::size_t object_count = 0;   ///< fill only
  std::chrono::duration<double> warm_up{0.2};
  std::chrono::duration<double> measured{1.0};
  pid_t server_pid = 0; ///< 0 = the server's CPU time is not reported

  /// Keys that each connection rotates through.
  std::size_t key_count() const;
};

/// Reads the command line.
/// @returns none after printing help or a complaint; `exit_code` then says which.
std::optional<load_options> parse_command_line(int argc, char** argv, int& exit_code);

} // namespace kvasir::bench
