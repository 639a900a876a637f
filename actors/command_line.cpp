#include "actors/command_line.hpp"

#include "actors/config_options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

namespace kvasir {

namespace {

constexpr std::string_view env_prefix = "KVASIR_";
constexpr std::string_view config_variable = "KVASIR_CONFIG";
// Settings of the client `kvasir` alone; they may be set for both programs.
constexpr std::array<std::string_view, 2> client_variables{"KVASIR_TIMEOUT", "KVASIR_JSON"};

constexpr auto footer = R"(
Each option but LMCache's may also come from the environment (--lm-port: KVASIR_LM_PORT) or from
the file named by --config (lm-port = 65432). A flag wins over the environment, and that over the
file. Unknown settings are refused.

Also starts as LMCache's own servers do, with what they serve and no more unless asked for:
  lmcache_server HOST PORT [cpu]      lm:// on PORT
  lmcache server [--port PORT] ...    MP on PORT, HTTP; also: kvasird server ...

Exit codes: 0 ended as asked to, 1 could not start, 2 wrong usage, 70 an internal part failed.)";

/// One option, where it was set, and to what.
struct setting {
  const config_option* option;
  std::string origin; ///< As the user knows it: "--lm-port", "KVASIR_LM_PORT", …
  std::string value;
};

/// Thrown within this file only: the line for the user.
struct usage_error {
  std::string line;
};

std::string printable(std::string text) {
  std::replace_if(
    text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

const config_option* find_option(std::string_view name) {
  auto all = config_options();
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const config_option& option) { return option.name == name; });
  return found != all.end() ? &*found : nullptr;
}

std::string variable_name(std::string_view option) {
  std::string result{env_prefix};
  for (auto c : option)
    result += c == '-' ? '_' : static_cast<char>(c - ('a' <= c && c <= 'z' ? 32 : 0));
  return result;
}

void apply_all(config_draft& draft, const std::vector<setting>& source) {
  std::map<std::string_view, const setting*> seen;
  for (const auto& s : source) {
    auto [other, is_new] = seen.emplace(s.option->sets, &s);
    if (!is_new)
      throw usage_error{other->second->origin + " and " + s.origin
                        + " contradict each other: give one of them"};
    if (auto wrong = s.option->apply(draft, s.value); !wrong.empty())
      throw usage_error{s.origin + (s.value.empty() ? "" : "=" + s.value) + ": " + wrong};
    if (!s.option->no_effect.empty())
      draft.notices.push_back(s.origin + " has no effect: " + std::string{s.option->no_effect});
  }
}

// -- flags ------------------------------------------------------------------------------

/// Whom the program is to stand in for.
enum class start_mode : uint8_t {
  kvasird,
  lm_server, ///< `lmcache_server`
  mp_server, ///< `lmcache server`
};

/// @param words the program's name, then its arguments. `server` is taken off.
start_mode take_start_mode(std::vector<const char*>& words) {
  std::string_view program = words.empty() ? "kvasird" : words.front();
  program.remove_prefix(program.find_last_of('/') + 1);
  if (program == "lmcache_server")
    return start_mode::lm_server;
  if (words.size() > 1 && std::string_view{words[1]} == "server") {
    words.erase(words.begin() + 1);
    return start_mode::mp_server;
  }
  if (program == "lmcache")
    throw usage_error{"of the program lmcache, only 'lmcache server' can be had from kvasird"};
  return start_mode::kvasird;
}

struct flags {
  std::vector<setting> settings;
  std::string config_file;
  start_mode mode = start_mode::kvasird;
  bool print_config = false;
};

/// `lmcache_server HOST PORT [DEVICE]`.
void add_positionals(flags& result, const std::vector<std::string>& words) {
  if (words.empty())
    return;
  if (words.size() < 2 || words.size() > 3 || result.mode == start_mode::mp_server)
    throw usage_error{"unexpected argument '" + words.front()
                      + "': say HOST PORT [cpu], or use flags"};
  if (words.size() == 3 && words[2] != "cpu")
    throw usage_error{"DEVICE=" + words[2] + ": only the device cpu is supported"};
  result.settings.push_back({find_option("host"), "HOST", words[0]});
  result.settings.push_back({find_option("lm-port"), "PORT", words[1]});
  result.mode = start_mode::lm_server;
}

/// @returns the flags, or what to print.
std::variant<flags, print_text> read_flags(int argc, const char* const* argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  flags result;
  result.mode = take_start_mode(arguments);

  CLI::App app{"A server for LMCache's clients: lm:// and the multiprocess (MP) protocol.",
               "kvasird"};
  app.footer(footer);
  app.set_version_flag("--version", std::string{"kvasird "} + KVASIR_VERSION);
  app.add_option("--config", result.config_file, "Read settings from FILE")
    ->option_text("FILE");
  app.add_flag("--print-config", result.print_config, "Show the effective settings and leave");
  std::vector<std::pair<const config_option*, CLI::Option*>> added;
  node_config defaults;
  auto add = [&](const config_option& option, const char* group) {
    auto name = "--" + std::string{option.name};
    const std::string help{option.help}; // Not const, CLI11 would take it for the target.
    auto flag = option.value.empty() ? app.add_flag(name, help) : app.add_option(name, help);
    auto shown = option.show != nullptr ? option.show(defaults) : std::string{};
    flag->option_text(std::string{option.value}
                      + (shown.empty() || shown == "0" ? "" : " [" + shown + "]"));
    flag->group(group);
    added.emplace_back(&option, flag);
  };
  for (const auto& option : config_options())
    add(option, "Options");
  for (const auto& option : lmcache_options())
    add(option, "Options of LMCache's servers");
  std::vector<std::string> words;
  app.add_option("words", words)->group("");

  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    return print_text{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return print_text{std::string{version.what()} + "\n"};
  } catch (const CLI::ParseError& failure) {
    throw usage_error{failure.what()};
  }
  add_positionals(result, words);
  for (auto [option, flag] : added) {
    if (flag->count() == 0)
      continue;
    setting given{option, flag->get_name(),
                  option->value.empty() ? std::string{} : flag->as<std::string>()};
    if (option->name == "port" && result.mode == start_mode::lm_server)
      given.option = find_option("lm-port");
    result.settings.push_back(std::move(given));
  }
  return result;
}

// -- environment and file ---------------------------------------------------------------

std::vector<setting> read_environment(const char* const* environment,
                                      std::string& config_file) {
  std::vector<setting> result;
  for (auto entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view text{*entry};
    auto name = text.substr(0, text.find('='));
    if (!name.starts_with(env_prefix) || name.size() == text.size())
      continue;
    auto value = text.substr(name.size() + 1);
    auto is_this = [&](const config_option& option) {
      return variable_name(option.name) == name;
    };
    auto all = config_options();
    if (is_service_variable(name, value)
        || std::find(client_variables.begin(), client_variables.end(), name)
             != client_variables.end())
      continue;
    if (name == config_variable) {
      if (config_file.empty())
        config_file = value;
    } else if (auto found = std::find_if(all.begin(), all.end(), is_this); found != all.end()) {
      result.push_back({&*found, std::string{name}, std::string{value}});
    } else {
      throw usage_error{"unknown setting in the environment: " + std::string{name}};
    }
  }
  return result;
}

/// The reader below skips lines that are too short to say anything, but nothing that somebody
/// wrote may go unnoticed.
void refuse_short_lines(std::istream& input, const std::string& path) {
  for (std::string line; std::getline(input, line);) {
    CLI::detail::trim(line);
    if (!line.empty() && line.size() < 3 && line.front() != '#' && line.front() != ';')
      throw usage_error{path + ": cannot read '" + line + "'"};
  }
  input.clear();
  input.seekg(0);
}

std::vector<setting> read_file(const std::string& path) {
  std::vector<setting> result;
  if (path.empty())
    return result;
  std::ifstream input{path};
  if (!input || input.peek() == std::ifstream::traits_type::eof())
    throw usage_error{"cannot read the configuration file " + path + ", or it is empty"};
  refuse_short_lines(input, path);
  for (const auto& item : CLI::ConfigINI{}.from_config(input)) {
    if (!item.parents.empty())
      throw usage_error{path + ": there are no sections, but it has [" + item.parents.front()
                        + "]"};
    auto option = find_option(item.name);
    if (option == nullptr)
      throw usage_error{path + ": unknown setting '" + item.name + "'"};
    if (item.inputs.size() != 1)
      throw usage_error{path + ": " + item.name + " takes one value"};
    result.push_back({option, path + ": " + item.name, item.inputs.front()});
  }
  return result;
}

std::string printed(const node_config& config) {
  std::string text;
  for (const auto& [name, value] : describe_config(config))
    text += name + " = \"" + value + "\"\n";
  return text;
}

command_line parse(int argc, const char* const* argv, const char* const* environment) {
  auto read = read_flags(argc, argv);
  if (auto text = std::get_if<print_text>(&read))
    return *text;
  auto& given = std::get<flags>(read);
  auto variables = read_environment(environment, given.config_file);
  config_draft draft;
  // Compat: a chart that starts lmcache_server on port 8080 gets just that.
  if (given.mode == start_mode::lm_server) {
    draft.config.mp_port.reset();
    draft.config.http_port.reset();
  } else if (given.mode == start_mode::mp_server) {
    draft.config.lm_port.reset();
  }
  apply_all(draft, read_file(given.config_file));
  apply_all(draft, variables);
  apply_all(draft, given.settings);
  if (!draft.http_host.empty() && draft.http_host != draft.config.host)
    throw usage_error{"--http-host " + draft.http_host + " is not --host " + draft.config.host
                      + ": kvasird listens on one address only"};
  if (auto wrong = complete_config(draft.config); !wrong.empty())
    return refused{"kvasird: " + printable(wrong)};
  if (given.print_config)
    return print_text{printed(draft.config)};
  return run_node{std::move(draft.config), std::move(draft.notices)};
}

} // namespace

command_line parse_command_line(int argc, const char* const* argv,
                                const char* const* environment) {
  try {
    return parse(argc, argv, environment);
  } catch (const usage_error& failure) {
    return refused{"kvasird: " + printable(failure.line)};
  } catch (const CLI::Error& failure) {
    return refused{"kvasird: " + printable(failure.what())};
  }
}

bool is_service_variable(std::string_view name, std::string_view value) {
  auto contains = [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  auto is_url = value.starts_with("tcp://") || value.starts_with("udp://")
                || value.starts_with("sctp://");
  return contains("_SERVICE_HOST") || contains("_SERVICE_PORT") || contains("_TCP_")
         || contains("_UDP_") || contains("_SCTP_") || (contains("_PORT") && is_url);
}

} // namespace kvasir
