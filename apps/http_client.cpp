#include "apps/http_client.hpp"

#include "messages/errc.hpp"

#include <httplib.h>

#include <array>

namespace kvasir {

namespace {

httplib::Result send(httplib::Client& client, http_method method, const std::string& target) {
  switch (method) {
    case http_method::get:
      return client.Get(target);
    case http_method::post:
      return client.Post(target);
    case http_method::put:
      return client.Put(target);
    case http_method::remove:
      return client.Delete(target);
  }
  return client.Get(target);
}

} // namespace

caf::expected<http_answer> http_request(const http_endpoint& where, http_method method,
                                        const std::string& target) {
  auto bare = where.host.size() > 2 && where.host.front() == '['
                ? where.host.substr(1, where.host.size() - 2)
                : where.host;
  httplib::Client client{bare, where.port};
  client.set_connection_timeout(where.timeout);
  client.set_read_timeout(where.timeout);
  client.set_write_timeout(where.timeout);
  if (!where.token.empty())
    client.set_bearer_token_auth(where.token);
  if (auto result = send(client, method, target)) {
    return http_answer{result->status, result->body};
  } else {
    auto peer = where.host + ":" + std::to_string(where.port);
    if (result.error() == httplib::Error::Connection)
      return caf::make_error(errc::peer_unreachable, "cannot connect to " + peer + " (HTTP)");
    if (result.error() == httplib::Error::ConnectionTimeout)
      return caf::make_error(errc::timed_out, "cannot connect to " + peer + " (HTTP) in time");
    return caf::make_error(errc::timed_out, peer + " does not answer HTTP in time");
  }
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string result;
  for (unsigned char c : text) {
    auto is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
                    || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain)
      result += static_cast<char>(c);
    else
      result.append({'%', digits[c >> 4], digits[c & 15]});
  }
  return result;
}

} // namespace kvasir
