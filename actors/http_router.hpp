// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <httplib.h>

#include <regex>
#include <string>
#include <vector>

namespace kvasir {

/// Adds routes to an HTTP server and knows which methods a path takes, which the server itself
/// does not: it cannot tell a wrong method from an unknown path.
///
/// Threading: add all routes before the server serves; const functions from any thread.
class http_router {
public:
  /// @pre `server` outlives the router
  explicit http_router(httplib::Server& server) : server_(server) {}

  /// Patterns are regular expressions over the whole path. A path that takes GET takes HEAD.
  void get(const char* pattern, httplib::Server::Handler handler);
  void post(const char* pattern, httplib::Server::Handler handler);
  void put(const char* pattern, httplib::Server::Handler handler);
  void del(const char* pattern, httplib::Server::Handler handler);

  /// The methods that `path` takes; none if there is no such path.
  std::vector<std::string> methods_of(const std::string& path) const;

private:
  struct route {
    std::regex pattern;
    std::vector<std::string> methods;
  };

  httplib::Server& server_;
  std::vector<route> routes_;
};

} // namespace kvasir
