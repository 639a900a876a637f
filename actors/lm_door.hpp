// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/counter.hpp"
#include "actors/io_unit.hpp"
#include "actors/socket.hpp"
#include "actors/storage_manager.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace kvasir {

class lm_connection;

struct lm_options {
  uint64_t max_object_bytes = 0;
  size_t max_connections = 4096;
  /// Hash values as they arrive, and compare before they leave.
  bool verify_checksums = true;
  /// A connection whose transfer makes no progress for this long is closed.
  std::chrono::milliseconds stall_limit{30'000};
  /// The same while other requests wait for the memory that it holds. A PUT only loses its slot
  /// (its value is drained and dropped, the connection lives); a GET cannot be taken back, so
  /// its connection is closed, and LMCache's client never reconnects: hence the longer time.
  std::chrono::milliseconds put_stall_limit_under_pressure{500};
  std::chrono::milliseconds get_stall_limit_under_pressure{5'000};
  /// How long a request may wait for room before a PUT is dropped or a GET is a miss.
  std::chrono::seconds room_deadline{10};
  /// Text of a LIST reply; what does not fit is left out and counted.
  size_t max_list_bytes = 4u << 20;
  /// Said to clients that speak HTTP here.
  std::string http_hint;
};

/// What the lm:// front door counts.
enum class lm_count : uint8_t {
  connections_accepted,
  connections_closed,
  connections_refused,
  puts,
  put_bytes,
  gets,
  get_hits,
  get_bytes,
  exists,
  lists,
  lists_truncated,
  healths,
  raw_keys,
  protocol_errors,
  wrong_protocol,
  torn_puts,
  dropped_too_large,
  dropped_no_room,
  dropped_layout_mismatch,
  dropped_stalled,
  checksum_mismatches,
  stalled_transfers,
  count_,
};

struct count_info {
  std::string_view name; ///< As exported, without prefix.
  std::string_view help;
};

/// Indexed by `lm_count`.
const std::array<count_info, static_cast<size_t>(lm_count::count_)>& lm_count_infos();

/// One I/O unit's part of the lm:// front door: its connections and their counters.
///
/// Threading: unit's thread, but for `counters` and `open_connections`.
class lm_shard {
public:
  lm_shard(io_unit& unit, storage_manager_actor manager, std::byte* pool,
           const lm_options& options);
  ~lm_shard();

  /// Serves a connection from now on. Whoever chose this shard counted it as open.
  void adopt(socket_handle socket);

  /// Ends a connection when this round ends.
  void remove(lm_connection& connection);

  /// Closes idle connections at once and the others after their current request.
  /// @param on_empty is called when no connection is left.
  void drain(std::function<void()> on_empty);

  /// Closes all connections, whatever they are doing.
  void close_all();

  bool draining() const noexcept { return on_empty_ != nullptr; }

  io_unit& unit;
  const storage_manager_actor manager;
  std::byte* const pool;
  const lm_options& options;
  counter_set<lm_count> counters;

  /// Connections that were given to this shard and have not ended. Any thread.
  std::atomic<uint64_t> open_connections{0};

private:
  std::unordered_map<lm_connection*, std::unique_ptr<lm_connection>> connections_;
  std::function<void()> on_empty_;
};

} // namespace kvasir
