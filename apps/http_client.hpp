// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

struct http_endpoint {
  std::string host;
  uint16_t port = 0;
  std::chrono::milliseconds timeout{0}; ///< Of each wait.
  std::string token;                    ///< Sent if not empty.
};

struct http_answer {
  int status = 0;
  std::string body;
};

enum class http_method : uint8_t { get, post, put, remove };

/// One request to kvasird's HTTP port.
/// @returns the answer whatever its status, or `errc::peer_unreachable` or `errc::timed_out`
/// with one line.
caf::expected<http_answer> http_request(const http_endpoint& where, http_method method,
                                        const std::string& target);

/// For a value in a query: everything but letters, digits and -._~ as %XX.
std::string percent_encoded(std::string_view text);

} // namespace kvasir
