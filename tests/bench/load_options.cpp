#include "load_options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace kvasir::bench {

namespace {

constexpr auto description
  = "Loads a cache server over raw sockets, one blocking thread per connection, and prints one "
    "JSON object.\nExit code: 0, 1 for wrong options, 2 when the server was lost, 3 when an "
    "answer was wrong.";

std::string check_consistency(const load_options& options) {
  if (options.client.split_sends
      && (options.client.speaks != protocol::lm || options.what != operation::put))
    return "--split needs --protocol lm and --op put";
  if (options.depth > 1 && options.what != operation::exist)
    return "--depth needs --op exist";
  if ((options.what == operation::fill) != (options.object_count > 0))
    return "--op fill and --objects need each other";
  if (options.value_size % 2 != 0)
    return "--size must be even";
  if (options.value_size * options.connection_count > max_run_bytes)
    return "--size times --connections must not exceed 256 MiB";
  return {};
}

} // namespace

std::size_t load_options::key_count() const {
  auto fitting = max_run_bytes / (value_size * connection_count);
  return std::clamp<std::size_t>(fitting, 1, max_key_count);
}

std::optional<load_options> parse_command_line(int argc, char** argv, int& exit_code) {
  load_options result;
  double warm_up_s = result.warm_up.count();
  double measured_s = result.measured.count();
  std::int64_t timeout_s = result.client.timeout.count();
  CLI::App app{description};
  app.add_option("--host", result.client.peer.host, "Numeric IPv4 address");
  app.add_option("--port", result.client.peer.port, "Port")->required();
  app.add_option("--protocol", result.client.speaks, "lm or resp")
    ->transform(CLI::CheckedTransformer(
      std::map<std::string, protocol>{{"lm", protocol::lm}, {"resp", protocol::resp}}));
  app.add_option("--op", result.what, "put, get, exist or fill")
    ->required()
    ->transform(
      CLI::CheckedTransformer(std::map<std::string, operation>{{"put", operation::put},
                                                               {"get", operation::get},
                                                               {"exist", operation::exist},
                                                               {"fill", operation::fill}}));
  app.add_option("--check", result.check, "What of a value is verified: content or length")
    ->transform(CLI::CheckedTransformer(std::map<std::string, verification>{
      {"content", verification::content}, {"length", verification::length}}));
  app.add_option("--size", result.value_size, "Value size, e.g. 64KiB")
    ->transform(CLI::AsSizeValue(false))
    ->check(CLI::Range(min_value_size, max_run_bytes));
  app.add_option("--connections", result.connection_count, "Connections that work")
    ->check(CLI::Range(1, 4096));
  app.add_option("--idle", result.idle_count, "Connections that stay silent")
    ->check(CLI::Range(0, 65536));
  app.add_option("--depth", result.depth, "EXIST requests in flight per connection")
    ->check(CLI::Range(1, 1024));
  app
    .add_option("--keys", result.max_key_count,
                "Keys per connection, fewer if they exceed 256 MiB")
    ->check(CLI::Range(1, 1 << 20));
  app.add_option("--objects", result.object_count, "Objects that --op fill stores")
    ->check(CLI::Range(1, 1 << 30));
  app.add_option("--warmup", warm_up_s, "Seconds of load before the measurement")
    ->check(CLI::Range(0.0, 60.0));
  app.add_option("--secs", measured_s, "Seconds measured")->check(CLI::Range(0.01, 3600.0));
  app.add_option("--timeout", timeout_s, "Seconds after which a silent server is given up")
    ->check(CLI::Range(1, 3600));
  app.add_option("--server-pid", result.server_pid, "Reports the CPU time of this process too");
  app.add_flag("--split", result.client.split_sends,
               "Header and value in two sends, Nagle on, as LMCache's own client does");
  try {
    app.parse(argc, argv);
    result.warm_up = std::chrono::duration<double>{warm_up_s};
    result.measured = std::chrono::duration<double>{measured_s};
    result.client.timeout = std::chrono::seconds{timeout_s};
    if (auto complaint = check_consistency(result); !complaint.empty())
      throw CLI::ValidationError(complaint);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 1;
    return std::nullopt;
  }
  return result;
}

} // namespace kvasir::bench
