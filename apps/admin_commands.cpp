#include "apps/admin_requests.hpp"
#include "apps/client_commands.hpp"
#include "apps/client_errors.hpp"
#include "apps/lm_client.hpp"
#include "messages/errc.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <future>

namespace kvasir::client {

namespace {

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

int clear(const options& how, bool force) {
  auto target = std::string{"/v1/clear?force="} + (force ? "true" : "false");
  return done(how, ask(how, http_method::post, target));
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
