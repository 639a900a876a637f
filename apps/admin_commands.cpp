#include "apps/client_commands.hpp"
#include "apps/client_errors.hpp"
#include "apps/http_client.hpp"
#include "apps/lm_client.hpp"
#include "messages/errc.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <future>

namespace kvasir::client {

namespace {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The reason in the reply of kvasird, which may be anybody.
std::string reason_in(const http_answer& answer) {
  auto body = json::parse(answer.body, nullptr, false);
  if (body.is_object() && body.contains("error") && body["error"].is_string())
    return body["error"];
  return "HTTP status " + std::to_string(answer.status);
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

/// The JSON that a GET answers.
caf::expected<json> get_json(const options& how, const std::string& target) {
  auto answer = ask(how, http_method::get, target);
  if (!answer)
    return std::move(answer.error());
  auto body = json::parse(answer->body, nullptr, false);
  if (answer->status != 200 || !body.is_object())
    return caf::make_error(errc::malformed_frame, "the server: " + reason_in(*answer));
  return body;
}

/// The command's end after a request that changes something.
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

void print_section(const std::string& name, const json& values) {
  for (const auto& [key, value] : values.items()) {
    auto label = name.empty() ? key : name + "." + key;
    if (value.is_object())
      print_section(label, value);
    else
      std::printf("%-32s %s\n", label.c_str(),
                  value.is_string() ? value.get<std::string>().c_str()
                                    : text_of(value).c_str());
  }
}

caf::error ping_lm(const options& how) {
  auto server = lm_client::connect(how.host, *how.lm_port, how.timeout);
  if (!server)
    return std::move(server.error());
  auto healthy = server->health();
  if (!healthy)
    return std::move(healthy.error());
  return *healthy ? caf::error{} : caf::make_error(errc::io_error, "lm:// says: not healthy");
}

caf::error ping_http(const options& how) {
  auto answer = ask(how, http_method::get, "/healthz");
  if (!answer)
    return std::move(answer.error());
  if (answer->status == 200)
    return caf::none;
  auto line = answer->body.substr(0, answer->body.find('\n'));
  return caf::make_error(errc::io_error, "HTTP says: " + line);
}

} // namespace

int ping(const options& how) {
  if (!how.lm_port && !how.http_port)
    return fail(usage, "both ports are off: there is nothing to ask");
  // At once, so that two mute ports do not take two time-outs.
  std::future<caf::error> over_http;
  if (how.http_port)
    over_http = std::async(std::launch::async, [&] { return ping_http(how); });
  auto problem = how.lm_port ? ping_lm(how) : caf::error{};
  if (over_http.valid()) {
    auto other = over_http.get();
    if (!problem)
      problem = other;
  }
  if (problem)
    return fail(problem);
  std::puts(how.json ? "{\"healthy\":true}" : "ok");
  return ok;
}

int status(const options& how) {
  auto body = get_json(how, "/v1/status");
  if (!body)
    return fail(body.error());
  if (how.json)
    std::printf("%s\n", text_of(*body).c_str());
  else
    print_section({}, *body);
  return ok;
}

int list(const options& how) {
  for (uint64_t cursor = 0;;) {
    auto body = get_json(how, "/v1/objects?cursor=" + std::to_string(cursor));
    if (!body)
      return fail(body.error());
    auto objects = body->find("objects");
    auto next = body->find("next_cursor");
    if (objects == body->end() || !objects->is_array() || next == body->end()
        || !next->is_number_unsigned())
      return fail(failed, "the server's list cannot be read");
    for (const auto& object : *objects)
      std::printf("%s\n", how.json ? text_of(object).c_str()
                                   : object.value("key", std::string{}).c_str());
    cursor = *next;
    if (cursor == 0)
      return std::fflush(stdout) == 0 ? ok : fail(failed, "cannot write the list");
  }
}

int remove(const options& how, const std::string& key) {
  return done(how, ask(how, http_method::remove, "/v1/objects?key=" + percent_encoded(key)));
}

int clear(const options& how) {
  return done(how, ask(how, http_method::post, "/v1/clear"));
}

int fail(exit_code code, const std::string& text) {
  std::fprintf(stderr, "kvasir: %s\n", text.c_str());
  return code;
}

int fail(const caf::error& error) {
  auto text = error.context().match_elements<std::string>()
                ? error.context().get_as<std::string>(0)
                : to_string(error);
  if (error == errc::peer_unreachable || error == errc::timed_out)
    return fail(unreachable, text);
  return fail(error == errc::invalid_argument ? usage : failed, text);
}

} // namespace kvasir::client
