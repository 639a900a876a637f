#include "actors/lm_server.hpp"

#include <caf/send.hpp>

#include <utility>

namespace kvasir {

lm_server::lm_server(caf::actor_config& config, lm_server_config setup)
  : lm_server_actor::base(config),
    setup_(std::move(setup)) {
  for (auto& unit : setup_.units)
    shards_.push_back(
      std::make_unique<lm_shard>(*unit, setup_.manager, setup_.pool, setup_.options));
  auto& first = *setup_.units.front();
  for (auto& socket : setup_.listening.sockets)
    acceptors_.push_back(std::make_unique<acceptor>(
      first, std::move(socket), [this](socket_handle accepted) { accept(std::move(accepted)); },
      [this] { refused_.fetch_add(1, std::memory_order_relaxed); }));
  first.post([this] {
    for (auto& listener : acceptors_)
      listener->open();
  });
}

lm_server::behavior_type lm_server::make_behavior() {
  return {
    [this](const get_front_door_status&) -> caf::result<front_door_status> { return status(); },
    [this](const drain_front_door& request) { return on_drain(request.at_once); },
    [this](const front_door_drained&) { on_drained(); },
  };
}

/// Runs on the accepting unit's thread.
void lm_server::accept(socket_handle socket) {
  uint64_t open = 0;
  for (auto& shard : shards_)
    open += shard->open_connections;
  if (open >= setup_.options.max_connections) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  auto& shard = *shards_[next_shard_.fetch_add(1) % shards_.size()];
  ++shard.open_connections;
  if (shard.unit.on_this_thread()) {
    shard.adopt(std::move(socket));
    return;
  }
  // A std::function must be copyable, a socket is not.
  auto shared = std::make_shared<socket_handle>(std::move(socket));
  shard.unit.post([&shard, shared] { shard.adopt(std::move(*shared)); });
}

front_door_status lm_server::status() const {
  counter_set<lm_count>::values sum{};
  front_door_status result;
  for (auto& shard : shards_) {
    shard->counters.add_to(sum);
    result.open_connections += shard->open_connections;
  }
  sum[static_cast<size_t>(lm_count::connections_refused)] += refused_.load();
  result.counters.assign(sum.begin(), sum.end());
  return result;
}

caf::result<front_door_drained> lm_server::on_drain(bool at_once) {
  auto promise = make_response_promise<front_door_drained>();
  drain_promises_.push_back(promise);
  if (!std::exchange(draining_, true)) {
    shards_left_ = shards_.size();
    stop_accepting();
  } else if (shards_left_ == 0) {
    on_all_drained();
  }
  if (at_once)
    for (auto& shard : shards_)
      shard->unit.post([&shard = *shard] { shard.close_all(); });
  return promise;
}

void lm_server::stop_accepting() {
  // Not a handle: the shards belong to this actor, and would keep it alive.
  auto self = address();
  auto drain = [self](lm_shard& shard) {
    shard.drain([self] {
      if (auto server = caf::actor_cast<caf::actor>(self))
        caf::anon_send(server, front_door_drained{});
    });
  };
  // Listeners first, on the unit that accepts: what it accepted before is posted before.
  shards_.front()->unit.post([this, drain] {
    for (auto& listener : acceptors_)
      shards_.front()->unit.retire(std::move(listener));
    acceptors_.clear();
    for (auto& shard : shards_)
      shard->unit.post([&shard = *shard, drain] { drain(shard); });
  });
}

void lm_server::on_drained() {
  if (shards_left_ > 0 && --shards_left_ == 0)
    on_all_drained();
}

void lm_server::on_all_drained() {
  for (auto& promise : drain_promises_)
    promise.deliver(front_door_drained{});
  drain_promises_.clear();
}

/// Promises hold their actor: what is not answered now would keep it, and its connections.
void lm_server::on_exit() {
  for (auto& promise : drain_promises_)
    promise.deliver(caf::make_error(errc::peer_unreachable));
  drain_promises_.clear();
}

} // namespace kvasir
