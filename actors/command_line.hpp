// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/node_config.hpp"

#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The one place that reads flags, environment and configuration file.
///
///   flag --lm-port  >  environment KVASIR_LM_PORT  >  file (--config): lm-port = …  >  default
///
/// Unknown names and values out of range are refused wherever they come from, and so are two
/// flags that contradict each other. Also understands how `lmcache_server HOST PORT [cpu]` and
/// `lmcache server` are started.
namespace kvasir {

/// Start a node.
struct run_node {
  node_config config;
  std::vector<std::string> notices; ///< For the log.
};

/// Print it and leave with exit code 0.
struct print_text {
  std::string text;
};

/// Print this line on standard error and leave with `exit_usage`.
struct refused {
  std::string line;
};

using command_line = std::variant<run_node, print_text, refused>;

inline constexpr int exit_usage = 2;

/// Reads `argv`, `environment` (as `environ`) and the file they name.
command_line parse_command_line(int argc, const char* const* argv,
                                const char* const* environment);

/// Does Kubernetes set this variable for a Service in the pod's namespace? A Service whose name
/// starts with "kvasir" yields KVASIR_…_SERVICE_HOST, KVASIR_…_PORT=tcp://… and the like, which
/// are no settings.
bool is_service_variable(std::string_view name, std::string_view value);

} // namespace kvasir
