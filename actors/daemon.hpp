// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/command_line.hpp"

namespace kvasir {

inline constexpr int exit_ok = 0;
inline constexpr int exit_start_failed = 1;
inline constexpr int exit_part_died = 70; ///< EX_SOFTWARE

/// The life of kvasird: starts a node, prints one line of readiness on standard output, and
/// serves until SIGTERM or SIGINT.
///
/// Requests under way get three seconds after the signal. Five seconds after it, or at a second
/// signal, the process ends whatever hangs. Death of a part that the node cannot do without
/// ends it, too.
///
/// Threading: call it from `main`, before any other thread: it blocks signals for all of them.
/// @returns the process's exit code.
int run_daemon(const run_node& what);

} // namespace kvasir
