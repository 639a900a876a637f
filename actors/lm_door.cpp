#include "actors/lm_door.hpp"

#include "actors/lm_connection.hpp"

#include <utility>
#include <vector>

namespace kvasir {

const std::array<count_info, static_cast<size_t>(lm_count::count_)>& lm_count_infos() {
  static constexpr std::array<count_info, static_cast<size_t>(lm_count::count_)> infos{{
    {"connections_accepted", "Connections accepted"},
    {"connections_closed", "Connections closed, by either side"},
    {"connections_refused", "Connections closed at once: a limit was reached"},
    {"puts", "PUT requests"},
    {"put_bytes", "Payload bytes of published PUTs"},
    {"gets", "GET requests"},
    {"get_hits", "GET requests answered with a value"},
    {"get_bytes", "Payload bytes sent"},
    {"exists", "EXIST requests"},
    {"lists", "LIST requests"},
    {"lists_truncated", "LIST replies that left keys out"},
    {"healths", "HEALTH requests"},
    {"raw_keys", "Requests whose key is not of LMCache's form and was taken as it is"},
    {"protocol_errors", "Malformed requests"},
    {"wrong_protocol", "Connections of another protocol's client"},
    {"torn_puts", "PUTs whose connection ended before their last byte"},
    {"dropped_too_large", "PUTs dropped: larger than the largest object"},
    {"dropped_no_room", "PUTs dropped: no room within the deadline"},
    {"dropped_layout_mismatch", "PUTs dropped: longer than their shape and dtype"},
    {"dropped_stalled", "PUTs dropped: no progress while others waited for room"},
    {"checksum_mismatches", "GETs whose value had changed in memory and was dropped"},
    {"stalled_transfers", "Transfers ended because they made no progress"},
  }};
  return infos;
}

lm_shard::lm_shard(io_unit& the_unit, storage_manager_actor the_manager, std::byte* the_pool,
                   const lm_options& the_options)
  : unit(the_unit),
    manager(std::move(the_manager)),
    pool(the_pool),
    options(the_options) {}

lm_shard::~lm_shard() = default;

void lm_shard::adopt(socket_handle socket) {
  counters.add(lm_count::connections_accepted);
  auto connection = std::make_unique<lm_connection>(*this, std::move(socket));
  auto& added = *connection;
  connections_.emplace(&added, std::move(connection));
  added.open();
}

void lm_shard::remove(lm_connection& connection) {
  auto i = connections_.find(&connection);
  if (i == connections_.end())
    return;
  counters.add(lm_count::connections_closed);
  --open_connections;
  unit.retire(std::move(i->second));
  connections_.erase(i);
  if (connections_.empty() && on_empty_)
    on_empty_();
}

void lm_shard::drain(std::function<void()> on_empty) {
  on_empty_ = std::move(on_empty);
  if (connections_.empty()) {
    on_empty_();
    return;
  }
  for (auto& entry : connections_)
    unit.schedule(*entry.first);
}

void lm_shard::close_all() {
  std::vector<lm_connection*> all;
  for (auto& entry : connections_)
    all.push_back(entry.first);
  for (auto connection : all)
    connection->close();
}

} // namespace kvasir
