#include "actors/http_context.hpp"

#include "actors/http_json.hpp"
#include "actors/log.hpp"

#include <caf/sec.hpp>

#include <fstream>
#include <iterator>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t max_token_bytes = 4096;

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

} // namespace

http_context::http_context(const node& served, std::string admin_token)
  : served_(served),
    token_(std::move(admin_token)) {}

node_status http_context::status() const {
  auto result = served_.status();
  result.http_wrong_protocol = wrong_protocol();
  return result;
}

httplib::Server::Handler http_context::guarded(httplib::Server::Handler handler) const {
  return [this, handler = std::move(handler)](const auto& request, auto& reply) {
    if (may_change(request, reply))
      handler(request, reply);
  };
}

void http_context::fail(httplib::Response& reply, int code, std::string_view text) {
  reply.status = code;
  reply.set_content(error_json(text), json_type);
}

void http_context::fail(httplib::Response& reply, const caf::error& error) const {
  if (error == errc::not_found)
    fail(reply, 404, "no such object");
  else if (error == errc::busy)
    fail(reply, 503, "the storage manager has reached a limit");
  else if (error == caf::sec::request_timeout)
    fail(reply, 504, "the storage manager did not answer in time");
  else
    fail(reply, 503, "the storage manager failed: " + served_.system().render(error));
}

bool http_context::may_change(const httplib::Request& request, httplib::Response& reply) const {
  constexpr std::string_view scheme = "Bearer ";
  if (!token_.empty()) {
    auto given = request.get_header_value("Authorization");
    if (given.starts_with(scheme)
        && equal_secrets(std::string_view{given}.substr(scheme.size()), token_))
      return true;
    reply.set_header("WWW-Authenticate", "Bearer");
    fail(reply, 401, "this needs the admin token");
  } else if (!is_loopback(request.remote_addr)) {
    fail(reply, 403, "this works from the server's own host only, or with --admin-token-file");
  } else if (request.has_header("Origin")) {
    fail(reply, 403, "this is not for web pages"); // That somebody on this host looks at.
  } else {
    return true;
  }
  log::write_limited(log::level::warn, "an HTTP request was refused",
                     {{"peer", request.remote_addr}, {"path", request.path}});
  return false;
}

caf::expected<std::string> read_admin_token(const std::string& path) {
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

} // namespace kvasir
