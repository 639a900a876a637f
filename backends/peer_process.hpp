// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/engine_messages.hpp"

#include <optional>
#include <string>

namespace kvasir {

/// The process at the other end of a connected TCP or Unix socket, if it runs on this host and
/// can be seen from here (same user, same PID and network namespace).
/// Cost: reads /proc/net/tcp and the descriptors of all processes of this user; milliseconds. Any
/// thread; not for an I/O unit's.
std::optional<process_id> peer_of_socket(int fd);

enum class mapping_state : uint8_t {
  mapped,
  unmapped, ///< It is gone, or maps the segment no more.
  unknown,  ///< Not to be seen from here.
};

/// Whether a process maps the segment of this name below /dev/shm. Cost: reads its whole map.
mapping_state maps_segment(process_id process, const std::string& segment);

/// This process.
process_id own_process();

} // namespace kvasir
