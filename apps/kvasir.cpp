#include "actors/command_line.hpp"
#include "actors/number_text.hpp"
#include "apps/client_commands.hpp"
#include "messages/lm_key.hpp"
#include "messages/lm_shape.hpp"
#include "messages/lm_tables.hpp"

#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdlib>

namespace {

using namespace kvasir;

constexpr auto footer = R"(
Options may stand before or after the command. The environment sets them, too: KVASIR_HOST,
KVASIR_LM_PORT, KVASIR_HTTP_PORT, KVASIR_TIMEOUT, KVASIR_ADMIN_TOKEN_FILE.

Exit codes: 0 done, 1 no such object, 2 wrong usage, 3 the server cannot be reached or does not
answer in time, 4 the server refused or failed.)";

/// As typed.
struct words {
  std::string host;
  std::string lm_port;
  std::string http_port;
  std::string timeout;
  std::string token_file;
  std::string key;
  std::string file;
  std::string dtype = "none";
  std::string format = "BINARY_BUFFER";
  std::vector<int32_t> shape;
  std::string tenant;
  std::string limit;
  bool force = false;
  bool json = false;
};

std::string from_environment(const char* name, const char* otherwise) {
  auto value = std::getenv(name);
  return value == nullptr || is_service_variable(name, value) ? otherwise : value;
}

/// Throws what CLI11 throws, so that all wrong usage ends the same way.
std::optional<uint16_t> port_of(const std::string& name, const std::string& text) {
  if (text == "off")
    return std::nullopt;
  auto number = parse_number<uint16_t>(text);
  if (!number || *number == 0)
    throw CLI::ValidationError{name, text + " is not a port: say 1 to 65535, or off"};
  return number;
}

client::options options_of(const words& given) {
  client::options result;
  result.host = given.host;
  result.lm_port = port_of("--lm-port", given.lm_port);
  result.http_port = port_of("--http-port", given.http_port);
  auto timeout = parse_duration(given.timeout);
  if (!timeout)
    throw CLI::ValidationError{"--timeout", given.timeout + " is no time: say e.g. 5s, 500ms"};
  result.timeout = *timeout;
  result.token_file = given.token_file;
  result.json = given.json;
  return result;
}

object_layout layout_of(const words& given) {
  auto dtype = given.dtype == "none" ? std::optional{0} : lm::dtype_from_name(given.dtype);
  if (!dtype)
    throw CLI::ValidationError{"--dtype", "unknown: " + given.dtype};
  auto format = lm::format_from_name(given.format);
  if (!format)
    throw CLI::ValidationError{"--format", "unknown: " + given.format};
  auto shape = lm::pad_shape(given.shape);
  if (!shape)
    throw CLI::ValidationError{"--shape", "has more than four dimensions"};
  return {*format, *dtype, *shape};
}

std::string key_of(const words& given) {
  auto key = lm::canonical_key(std::string_view{given.key});
  if (!key)
    throw CLI::ValidationError{"KEY", std::string{lm::to_string(key.fault)}};
  return key.bytes;
}

uint64_t limit_of(const words& given) {
  auto limit = parse_size(given.limit);
  if (!limit || *limit == 0)
    throw CLI::ValidationError{"LIMIT", given.limit + " is no size: say e.g. 4GiB, 512MiB"};
  return *limit;
}

using command = std::function<int(const client::options&)>;

/// `quota [list]`, `quota get|set|rm TENANT`. The command that was named goes to `chosen`.
void add_quota(CLI::App& app, words& given, command& chosen) {
  auto quota = app.add_subcommand("quota", "What tenants use and may use; without more: list");
  quota->require_subcommand(0, 1);
  // CLI11 calls the outer command's function after the inner one's.
  quota->callback([&chosen, quota] {
    if (quota->get_subcommands().empty())
      chosen = client::list_quotas;
  });
  auto add = [&, quota](const char* name, const char* help, command action) {
    auto added = quota->add_subcommand(name, help);
    added->callback([&chosen, action] { chosen = action; });
    return added;
  };
  add("list", "Tenant, bytes used, limit; one a line", client::list_quotas);
  auto get = add("get", "That of one tenant", [&](const client::options& how) {
    return client::get_quota(how, given.tenant);
  });
  auto set = add("set", "Limit what a tenant's objects may take", [&](const auto& how) {
    return client::set_quota(how, given.tenant, limit_of(given));
  });
  auto rm = add("rm", "Remove the limit", [&](const client::options& how) {
    return client::remove_quota(how, given.tenant);
  });
  for (auto with_tenant : {get, set, rm})
    with_tenant
      ->add_option("TENANT", given.tenant, "Its cache salt; '' for objects without one")
      ->required();
  set->add_option("LIMIT", given.limit, "E.g. 4GiB, 512MiB")->required();
}

void add_shared_options(CLI::App& app, words& given) {
  given.host = from_environment("KVASIR_HOST", "127.0.0.1");
  given.lm_port = from_environment("KVASIR_LM_PORT", "65432");
  given.http_port = from_environment("KVASIR_HTTP_PORT", "8080");
  given.timeout = from_environment("KVASIR_TIMEOUT", "5s");
  given.token_file = from_environment("KVASIR_ADMIN_TOKEN_FILE", "");
  app.add_option("--host", given.host, "Where kvasird runs")->capture_default_str();
  app.add_option("--lm-port", given.lm_port, "Its lm:// port, or off")->capture_default_str();
  app.add_option("--http-port", given.http_port, "Its HTTP port, or off")
    ->capture_default_str();
  app.add_option("--timeout", given.timeout, "Longest wait without a byte")
    ->capture_default_str();
  app.add_option("--admin-token-file", given.token_file,
                 "Holds the token for rm, clear and quota");
  app.add_flag("--json", given.json, "Results as JSON");
}

/// Runs the command. Throws `CLI::ParseError` for wrong usage.
int run(int argc, char** argv) {
  CLI::App app{"Talks to kvasird.", "kvasir"};
  words given;
  command chosen;
  app.set_version_flag("--version", std::string{"kvasir "} + KVASIR_VERSION);
  app.footer(footer);
  app.require_subcommand(1);
  app.fallthrough();
  add_shared_options(app, given);

  auto add = [&](const char* name, const char* help, command action) {
    auto added = app.add_subcommand(name, help);
    added->callback([&chosen, action] { chosen = action; });
    return added;
  };
  add("ping", "Is it healthy, on both ports?", client::ping);
  add("status", "Numbers and effective settings", client::status);
  add("ls", "All keys, one a line", client::list);
  add("clear", "Drop all objects, without asking, but those that somebody holds to read",
      [&](const client::options& how) { return client::clear(how, given.force); })
    ->add_flag("--force", given.force, "Those, too");
  add_quota(app, given, chosen);
  auto rm = add("rm", "Drop an object",
                [&](const client::options& how) { return client::remove(how, key_of(given)); });
  auto get = add("get", "Fetch a value", [&](const client::options& how) {
    return client::get(how, key_of(given), given.file);
  });
  auto put
    = add("put", "Store a value, and check that it is there", [&](const client::options& how) {
        return client::put(how, key_of(given), given.file, layout_of(given),
                           !given.shape.empty());
      });
  for (auto with_key : {rm, get, put})
    with_key->add_option("KEY", given.key)->required();
  get->add_option("FILE", given.file, "Default, and -: standard output");
  put->add_option("FILE", given.file, "- : standard input")->required();
  put
    ->add_option("--dtype", given.dtype,
                 "none, float16, bfloat16, float32, float64, uint8, "
                 "float8_e4m3fn, float8_e5m2")
    ->capture_default_str();
  put->add_option("--format", given.format, "KV_2LTD, KV_T2D, KV_2TD, BINARY, …")
    ->capture_default_str();
  put->add_option("--shape", given.shape, "Up to four numbers, e.g. 2,32,256,1024")
    ->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {
    return app.exit(wish); // Prints help or version.
  }
  return chosen(options_of(given));
}

} // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    return client::fail(client::usage, wrong.what());
  } catch (const std::exception& problem) {
    return client::fail(client::failed, problem.what());
  }
}
