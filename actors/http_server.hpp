// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace kvasir {

class node;

/// The HTTP port: health, metrics, status, and what the command line asks for. Two threads of
/// its own; it asks the node's actors and never touches payload. Routes: docs/operations.md.
///
/// Threading: construct, `port` and destroy from one thread.
class http_server {
public:
  /// Binds to `host`; port 0 takes a free one. Serves when this returns.
  /// @returns the server, or `errc::io_error` with one line.
  static caf::expected<std::unique_ptr<http_server>>
  open(const node& served, const std::string& host, uint16_t port);
  ~http_server();

  uint16_t port() const;

private:
  struct impl;
  explicit http_server(std::unique_ptr<impl> parts);
  std::unique_ptr<impl> impl_;
};

} // namespace kvasir
