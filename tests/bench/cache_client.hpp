#pragma once

#include "socket_io.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace kvasir::bench {

enum class protocol { lm, resp };

struct client_options {
  protocol speaks = protocol::lm;
  endpoint peer;
  /// Header and value in two sends with Nagle's algorithm on, as LMCache's own client does.
  bool split_sends = false;
  std::chrono::seconds timeout{30};
};

/// One connection to a cache server. Each operation blocks until its last reply arrived.
///
/// Threading: not thread-safe; belongs to one thread at a time.
class cache_client {
public:
  virtual ~cache_client() = default;

  /// Stores `value` and waits until it is known to be stored.
  /// @returns whether it was stored.
  virtual bool put(const std::string& key, std::span<const char> value) = 0;

  /// Fetches a value of exactly `into.size()` bytes.
  /// @returns whether a value of that size arrived; one of another size is read and dropped.
  virtual bool get(const std::string& key, std::span<char> into) = 0;

  /// Asks for all `keys` at once (pipelined) and then reads all replies.
  /// @returns how many exist.
  virtual std::size_t exist(std::span<const std::string> keys) = 0;

  /// Stores the same `value` under all `keys`, pipelined, and waits until the last is stored.
  virtual void put_all(std::span<const std::string> keys, std::span<const char> value) = 0;
};

std::unique_ptr<cache_client> connect_client(const client_options& options);

} // namespace kvasir::bench
