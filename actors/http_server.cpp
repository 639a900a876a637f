#include "actors/http_server.hpp"

#include "actors/handover.hpp"
#include "actors/http_json.hpp"
#include "actors/http_listener.hpp"
#include "actors/log.hpp"
#include "actors/metrics.hpp"
#include "actors/node.hpp"
#include "messages/lm_key.hpp"

#include <caf/scoped_actor.hpp>
#include <caf/sec.hpp>
#include <httplib.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>

namespace kvasir {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds request_limit{2}; // From its first byte to its last.
constexpr std::chrono::seconds reply_limit{5};
constexpr std::chrono::seconds ask_limit{2};
constexpr size_t max_body_bytes = 64 << 10; // No route reads one.
constexpr size_t max_token_bytes = 4096;

constexpr auto json_type = "application/json";
constexpr auto text_type = "text/plain; charset=utf-8";
constexpr auto metrics_type = "text/plain; version=0.0.4; charset=utf-8";

/// One request and its reply on a non-blocking socket, each with a deadline as a whole, so that
/// a client that sends a byte now and then does not keep a thread.
class deadline_stream final : public httplib::Stream {
public:
  explicit deadline_stream(int fd) : fd_(fd) { begin_request(); }

  void begin_request() {
    read_until_ = clock::now() + request_limit;
    write_until_.reset();
  }
  bool has_more() const { return begin_ < end_; }

  bool is_readable() const override { return has_more() || wait(POLLIN, read_until_); }
  bool is_writable() const override { return wait(POLLOUT, clock::now() + reply_limit); }
  int socket() const override { return fd_; }

  ssize_t read(char* to, size_t size) override {
    if (!has_more()) {
      begin_ = end_ = 0;
      if (!wait(POLLIN, read_until_))
        return -1;
      auto got = recv(fd_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0)
        return got;
      end_ = static_cast<size_t>(got);
    }
    auto count = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, count, to);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, size_t size) override {
    if (!write_until_)
      write_until_ = clock::now() + reply_limit;
    if (!wait(POLLOUT, *write_until_))
      return -1;
    return send(fd_, from, size, MSG_NOSIGNAL);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    name(&getpeername, ip, port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    name(&getsockname, ip, port);
  }

private:
  bool wait(short events, clock::time_point until) const {
    for (;;) {
      auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
      if (left.count() <= 0)
        return false;
      pollfd polled{fd_, events, 0};
      auto ready = poll(&polled, 1, static_cast<int>(left.count()));
      if (ready > 0)
        return true;
      if (ready < 0 && errno != EINTR)
        return false;
    }
  }

  template <class Function>
  void name(Function function, std::string& ip, int& port) const {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    auto generic = reinterpret_cast<sockaddr*>(&address);
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> service{};
    if (function(fd_, generic, &size) != 0
        || getnameinfo(generic, size, host.data(), host.size(), service.data(), service.size(),
                       NI_NUMERICHOST | NI_NUMERICSERV)
             != 0)
      return;
    ip = host.data();
    std::string_view digits{service.data()};
    std::from_chars(digits.data(), digits.data() + digits.size(), port);
  }

  int fd_;
  clock::time_point read_until_;
  std::optional<clock::time_point> write_until_;
  std::array<char, 4096> buffer_{};
  size_t begin_ = 0;
  size_t end_ = 0;
};

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

/// Takes as long for a wrong token as for the right one.
bool equal_secrets(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i])
                  ^ static_cast<unsigned char>(secret[i % secret.size()]);
  return difference == 0;
}

/// The file's text without blanks around it; empty if `path` is.
caf::expected<std::string> read_token(const std::string& path) {
  if (path.empty())
    return std::string{};
  std::ifstream file{path};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  auto first = text.find_first_not_of(" \t\r\n");
  auto last = text.find_last_not_of(" \t\r\n");
  if (!file.is_open() || file.bad())
    return caf::make_error(errc::invalid_argument, "cannot read the admin token file " + path);
  if (first == std::string::npos)
    return caf::make_error(errc::invalid_argument,
                           "the admin token file " + path + " is empty");
  text = text.substr(first, last - first + 1);
  if (text.size() > max_token_bytes || text.find('\n') != std::string::npos)
    return caf::make_error(errc::invalid_argument,
                           "the admin token file " + path + " must hold one line");
  return text;
}

void fail(httplib::Response& reply, int code, std::string_view text) {
  reply.status = code;
  reply.set_content(error_json(text), json_type);
}

void fail(httplib::Response& reply, const caf::error& error, const std::string& text) {
  if (error == errc::not_found)
    fail(reply, 404, "no such object");
  else if (error == caf::sec::request_timeout)
    fail(reply, 504, "the storage manager did not answer in time");
  else
    fail(reply, 503, "the storage manager failed: " + text);
}

} // namespace

struct http_server::impl : httplib::Server {
  impl(const node& of, std::string secret) : served(of), token(std::move(secret)) {
    set_payload_max_length(max_body_bytes);
    add_routes();
  }

  ~impl() override {
    listener.reset(); // Its threads use the rest.
  }

  /// Answers what is there. @returns whether the connection can go on.
  bool serve(int fd) {
    deadline_stream stream{fd};
    for (;;) {
      auto closed = false;
      if (!process_request(stream, false, closed, nullptr) || closed)
        return false;
      if (!stream.has_more())
        return true;
      stream.begin_request();
    }
  }

  void add_routes() {
    Get("/healthz", [this](const auto&, auto& reply) { on_healthz(reply); });
    Get("/metrics", [this](const auto&, auto& reply) {
      reply.set_content(render_metrics(status()), metrics_type);
    });
    Get("/v1/status", [this](const auto&, auto& reply) {
      reply.set_content(status_json(status(), served.config()), json_type);
    });
    Get("/v1/objects", [this](const auto& request, auto& reply) { on_list(request, reply); });
    Delete("/v1/objects", [this](const auto& request, auto& reply) {
      if (may_change(request, reply))
        on_remove(request, reply);
    });
    Post("/v1/clear", [this](const auto& request, auto& reply) {
      if (may_change(request, reply))
        on_clear(reply);
    });
    set_pre_routing_handler(
      [this](const auto& request, auto& reply) { return on_bodiless_post(request, reply); });
    set_error_handler([](const auto&, auto& reply) {
      if (reply.body.empty())
        fail(reply, reply.status, "HTTP status " + std::to_string(reply.status));
    });
    set_exception_handler(
      [](const auto&, auto& reply, std::exception_ptr) { fail(reply, 500, "internal error"); });
  }

  /// A POST without a length has no body (RFC 9112), but httplib would read until it ends.
  HandlerResponse on_bodiless_post(const httplib::Request& request,
                                   httplib::Response& reply) const {
    if (request.method != "POST" || request.has_header("Content-Length")
        || request.has_header("Transfer-Encoding"))
      return HandlerResponse::Unhandled;
    if (request.path != "/v1/clear")
      reply.status = 404;
    else if (may_change(request, reply))
      on_clear(reply);
    return HandlerResponse::Handled;
  }

  node_status status() const {
    auto result = served.status();
    if (listener)
      result.http_wrong_protocol = listener->wrong_protocol();
    return result;
  }

  void on_healthz(httplib::Response& reply) const {
    auto now = served.status();
    reply.status = now.healthy ? 200 : 503;
    reply.set_content((now.healthy ? "ok" : now.unhealthy_reason) + "\n", text_type);
  }

  /// Asks the storage manager; an error becomes the reply.
  template <class Request, class Handler>
  void ask(const Request& request, httplib::Response& reply, Handler on_answer) const {
    caf::scoped_actor self{served.system()};
    handover_release(caf::actor_cast<caf::abstract_actor*>(served.manager()));
    self->request(served.manager(), ask_limit, request)
      .receive(on_answer, [&](const caf::error& error) {
        fail(reply, error, served.system().render(error));
      });
  }

  void on_list(const httplib::Request& request, httplib::Response& reply) const {
    list_objects slice;
    auto text = request.get_param_value("cursor");
    auto end = text.data() + text.size();
    auto [stopped, failed] = std::from_chars(text.data(), end, slice.cursor);
    if (!text.empty() && (failed != std::errc{} || stopped != end))
      return fail(reply, 400, "cursor is not a number");
    ask(slice, reply,
        [&](const object_list& list) { reply.set_content(objects_json(list), json_type); });
  }

  void on_remove(const httplib::Request& request, httplib::Response& reply) const {
    auto key = lm::canonical_key(std::string_view{request.get_param_value("key")});
    if (!key)
      return fail(reply, 400, "key: " + std::string{lm::to_string(key.fault)});
    ask(remove_object{{key.bytes}}, reply,
        [&] { reply.set_content("{\"removed\":true}\n", json_type); });
  }

  void on_clear(httplib::Response& reply) const {
    ask(clear_objects{}, reply, [&] { reply.set_content("{\"cleared\":true}\n", json_type); });
  }

  /// Answers the request if it may not.
  bool may_change(const httplib::Request& request, httplib::Response& reply) const {
    constexpr std::string_view scheme = "Bearer ";
    if (!token.empty()) {
      auto given = request.get_header_value("Authorization");
      if (given.starts_with(scheme)
          && equal_secrets(std::string_view{given}.substr(scheme.size()), token))
        return true;
      reply.set_header("WWW-Authenticate", "Bearer");
      fail(reply, 401, "this needs the admin token");
    } else if (!is_loopback(request.remote_addr)) {
      fail(reply, 403,
           "this works from the server's own host only, or with --admin-token-file");
    } else if (request.has_header("Origin")) {
      fail(reply, 403, "this is not for web pages"); // That somebody on this host looks at.
    } else {
      return true;
    }
    log::write_limited(log::level::warn, "an HTTP request was refused",
                       {{"peer", request.remote_addr}, {"path", request.path}});
    return false;
  }

  const node& served;
  const std::string token;
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
  auto token = read_token(served.config().admin_token_file);
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
