// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/node_config.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The settings of a node, one row each: what it is called, what it does, how it is shown.
/// Threading: pure functions over a constant table.
namespace kvasir {

/// A configuration on its way, and what should be said in the log once there is one.
struct config_draft {
  node_config config;
  std::vector<std::string> notices;
  std::string http_host{}; ///< As given to LMCache's flag; must be `config.host`.
};

struct config_option {
  std::string_view name;  ///< `--name`, `KVASIR_NAME`, `name = …` in a file.
  std::string_view value; ///< What the help calls its value; empty: it takes none.
  std::string_view help;
  std::string_view sets; ///< Two options of one source that set the same contradict each other.

  /// @returns what is wrong with `text`, empty if nothing is.
  std::string (*apply)(config_draft& draft, std::string_view text);

  /// The effective value, in a form that `apply` takes. Null for LMCache's own flags.
  std::string (*show)(const node_config& config);

  std::string_view no_effect = {}; ///< Not empty: accepted in vain, and why, for the log.
};

/// kvasir's own, in the order of the help.
std::span<const config_option> config_options();

/// What LMCache's own servers are started with, as far as kvasir has no option of that name. They
/// are known on the command line only.
std::span<const config_option> lmcache_options();

/// Fills in what depends on other settings, then checks that they fit together.
/// @returns one line that says what does not, or nothing.
std::string complete_config(node_config& config);

/// Name and effective value of every setting.
std::vector<std::pair<std::string, std::string>> describe_config(const node_config& config);

} // namespace kvasir
