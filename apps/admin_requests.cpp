#include "apps/admin_requests.hpp"

#include "apps/client_errors.hpp"
#include "messages/errc.hpp"

#include <cstdio>
#include <fstream>

namespace kvasir::client {

namespace {

/// The reason in the reply of kvasird, which may be anybody.
std::string reason_in(const http_answer& answer) {
  auto body = json::parse(answer.body, nullptr, false);
  if (body.is_object() && body.contains("error") && body["error"].is_string())
    return body["error"];
  return "HTTP status " + std::to_string(answer.status);
}

} // namespace

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

caf::expected<http_answer> ask(const options& how, http_method method,
                               const std::string& target) {
  if (!how.http_port)
    return caf::make_error(errc::invalid_argument, "this needs the HTTP port");
  http_endpoint where{how.host, *how.http_port, how.timeout, {}};
  if (!how.token_file.empty()) {
    std::ifstream file{how.token_file};
    if (!(file >> where.token))
      return caf::make_error(errc::invalid_argument,
                             "cannot read the token file " + how.token_file);
  }
  return http_request(where, method, target);
}

caf::expected<json> get_json(const options& how, const std::string& target) {
  auto answer = ask(how, http_method::get, target);
  if (!answer)
    return std::move(answer.error());
  auto body = json::parse(answer->body, nullptr, false);
  if (answer->status != 200 || !body.is_object())
    return caf::make_error(errc::malformed_frame, "the server: " + reason_in(*answer));
  return body;
}

int done(const options& how, const caf::expected<http_answer>& answer) {
  if (!answer)
    return fail(answer.error());
  if (answer->status == 404)
    return fail(not_found, "the server: " + reason_in(*answer));
  if (answer->status != 200)
    return fail(failed, "the server: " + reason_in(*answer));
  if (how.json)
    std::fputs(answer->body.c_str(), stdout);
  return ok;
}

} // namespace kvasir::client
