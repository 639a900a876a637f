// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/handover.hpp"
#include "actors/node.hpp"

#include <caf/expected.hpp>
#include <caf/scoped_actor.hpp>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace kvasir {

/// What the routes of the HTTP port have in common: whom they ask, and who may change something.
///
/// Threading: const functions from any thread.
class http_context {
public:
  static constexpr std::chrono::seconds ask_limit{2};

  /// @param admin_token empty: changes must come from this host
  /// @pre `served` outlives it
  http_context(const node& served, std::string admin_token);

  const node& served() const { return served_; }

  /// Connections of other protocols' clients, for the status.
  std::function<uint64_t()> wrong_protocol = [] {
    return uint64_t{0};
  };

  node_status status() const;

  /// The handler of a request that changes something: answers the request if it may not.
  httplib::Server::Handler guarded(httplib::Server::Handler handler) const;

  /// Asks the storage manager. An error becomes the reply, otherwise `on_answer` runs.
  template <class Request, class Handler>
  void ask(const Request& request, httplib::Response& reply, Handler on_answer) const {
    caf::scoped_actor self{served_.system()};
    handover_release(caf::actor_cast<caf::abstract_actor*>(served_.manager()));
    self->request(served_.manager(), ask_limit, request)
      .receive(on_answer, [&](const caf::error& error) { fail(reply, error); });
  }

  /// Answers with {"error": text}.
  static void fail(httplib::Response& reply, int code, std::string_view text);

private:
  void fail(httplib::Response& reply, const caf::error& error) const;
  bool may_change(const httplib::Request& request, httplib::Response& reply) const;

  const node& served_;
  std::string token_;
};

/// The one line in a file, without blanks around it; empty if `path` is.
/// @returns it, or `errc::invalid_argument` with one line.
caf::expected<std::string> read_admin_token(const std::string& path);

} // namespace kvasir
