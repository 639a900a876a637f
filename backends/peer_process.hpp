// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/engine_messages.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

/// Who is at the other end of a connection, and does that process still map our memory? Read from
/// /proc, as far as this process may see it: processes of other users, of outer pid namespaces or
/// on other hosts are not visible, and that is an answer of its own.
///
/// Threading: pure functions, from any thread. Blocking: they read /proc and wait for no process,
/// but their cost grows with the host (below): not for I/O threads.
/// Source: proc(5), unix(7).
namespace kvasir {

/// @returns nothing if there is no such process or it is not visible.
std::optional<process_id> process_of(pid_t pid);

/// The process at the other end of `fd`, a connected TCP socket (IPv4, IPv6 or mixed) whose other
/// end is on this host and in this network namespace, or a connected Unix socket (then: who
/// connected or listened). If several share that socket, the one that started first. Behind a
/// proxy it is the proxy.
/// Cost for TCP: one line per TCP socket of the host, then one readlink per open file of the
/// visible processes; some milliseconds, on a busy host tens. Gives up beyond `max_sockets` or
/// `max_files`.
/// @returns nothing if there is no such process or it is not visible.
std::optional<process_id> peer_of_socket(int fd);

inline constexpr size_t max_sockets = 200'000; ///< TCP sockets looked at.
inline constexpr size_t max_files = 500'000;   ///< Open files looked at.

enum class mapping_state : uint8_t {
  no, ///< It does not, or it is gone.
  yes,
  not_visible, ///< It exists, but this process may not look.
};

/// Whether `process` maps the segment with the name `name` in /dev/shm now, under that name or
/// another one. Says nothing about its children, who inherit mappings, nor about what it may map
/// later from a file that it has open: `shm_pool::open_elsewhere` does.
/// Cost: one line per mapping of the process, at most `max_mappings`; an engine has thousands: a
/// few milliseconds.
mapping_state maps_segment(const process_id& process, const std::string& name);

inline constexpr size_t max_mappings = 200'000; ///< More than that are not visible.

} // namespace kvasir
