#include "actors/http_server.hpp"

#include "actors/http_listener.hpp"
#include "actors/http_routes.hpp"
#include "actors/http_stream.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t max_body_bytes = 64 << 10;

} // namespace

struct http_server::impl : httplib::Server {
  impl(const node& served, std::string token) : context(served, std::move(token)) {
    context.wrong_protocol = [this] {
      return listener ? listener->wrong_protocol() : 0;
    };
    set_payload_max_length(max_body_bytes);
    add_node_routes(routes, context);
    add_object_routes(routes, context);
    add_quota_routes(routes, context);
    add_lmcache_routes(routes, context);
    set_pre_routing_handler([](const auto& request, auto&) {
      say_that_it_has_no_body(request);
      return HandlerResponse::Unhandled;
    });
    set_error_handler([this](const auto& request, auto& reply) {
      if (reply.body.empty() && !refuse_method(request, reply))
        http_context::fail(reply, reply.status, "HTTP status " + std::to_string(reply.status));
    });
    set_exception_handler([](const auto&, auto& reply, std::exception_ptr) {
      http_context::fail(reply, 500, "internal error");
    });
  }

  ~impl() override {
    listener.reset(); // Its threads use the rest.
  }

  /// A request without a length has no body (RFC 9112), but httplib would read until the client
  /// closes, before it looks for the route.
  static void say_that_it_has_no_body(const httplib::Request& request) {
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
      // httplib's own request is not const; only handlers see it so.
      const_cast<httplib::Request&>(request).set_header("Content-Length", "0");
  }

  /// Answers a request whose path is known, but not with this method.
  /// @returns false for any other request.
  bool refuse_method(const httplib::Request& request, httplib::Response& reply) const {
    // httplib says the first of a method it has routes for, the other of one it has none for.
    if (reply.status != 404 && reply.status != 400)
      return false;
    auto methods = routes.methods_of(request.path);
    if (methods.empty()
        || std::find(methods.begin(), methods.end(), request.method) != methods.end())
      return false;
    std::string allowed;
    for (const auto& method : methods)
      allowed += (allowed.empty() ? "" : ", ") + method;
    reply.set_header("Allow", allowed);
    http_context::fail(reply, 405, "this path takes " + allowed);
    return true;
  }

  /// Answers what is there. @returns whether the connection can go on.
  bool serve(int fd) {
    http_stream stream{fd};
    for (;;) {
      auto closed = false;
      if (!process_request(stream, false, closed, nullptr) || closed)
        return false;
      if (!stream.has_more())
        return true;
      stream.begin_request();
    }
  }

  http_context context;
  http_router routes{*this};
  uint16_t bound_port = 0;
  std::unique_ptr<http_listener> listener;
};

http_server::http_server(std::unique_ptr<impl> parts) : impl_(std::move(parts)) {}

http_server::~http_server() = default;

uint16_t http_server::port() const {
  return impl_->bound_port;
}

caf::expected<std::unique_ptr<http_server>>
http_server::open(const node& served, const std::string& host, uint16_t port) {
  auto token = read_admin_token(served.config().admin_token_file);
  if (!token)
    return std::move(token.error());
  auto listening = listen_on(host, port);
  if (!listening)
    return std::move(listening.error());
  auto hint = served.lm_port() != 0
                ? "lm:// is served on port " + std::to_string(served.lm_port())
                : std::string{"lm:// is not served"};
  auto parts = std::make_unique<impl>(served, std::move(*token));
  parts->bound_port = listening->port;
  parts->listener = std::make_unique<http_listener>(
    std::move(*listening), [self = parts.get()](int fd) { return self->serve(fd); },
    std::move(hint));
  return std::unique_ptr<http_server>{new http_server{std::move(parts)}};
}

} // namespace kvasir
