#include "actors/mp_server.hpp"

#include <caf/send.hpp>

#include <utility>

namespace kvasir {

namespace {

constexpr size_t max_queued_copies = 1'024;

} // namespace

mp_server::mp_server(caf::actor_config& config, mp_server_config setup)
  : mp_server_actor::base(config),
    unit_(std::move(setup.unit)),
    options_(std::move(setup.options)),
    workers_({setup.copy_threads, max_queued_copies}),
    door_(*unit_, std::move(setup.socket), system(), std::move(setup.sessions), workers_,
          options_) {
  unit_->post([this] { door_.open(); });
}

mp_server::behavior_type mp_server::make_behavior() {
  return {
    [this](const get_front_door_status&) -> caf::result<front_door_status> {
      front_door_status result;
      counter_set<mp_count>::values sum{};
      door_.counters().add_to(sum);
      result.counters.assign(sum.begin(), sum.end());
      result.open_connections = door_.open_clients();
      return result;
    },
    [this](const drain_front_door& request) { return on_drain(request.at_once); },
    [this](const front_door_drained&) { on_drained(); },
  };
}

caf::result<front_door_drained> mp_server::on_drain(bool at_once) {
  if (drained_ && !at_once)
    return front_door_drained{};
  auto promise = make_response_promise<front_door_drained>();
  drain_promises_.push_back(promise);
  // Not a handle: the door belongs to this actor, and would keep it alive.
  auto tell = [self = address()] {
    if (auto server = caf::actor_cast<caf::actor>(self))
      caf::anon_send(server, front_door_drained{});
  };
  if (!std::exchange(draining_, true))
    unit_->post([this, tell] { door_.drain(tell); });
  if (at_once)
    unit_->post([this, tell] {
      door_.close();
      tell();
    });
  return promise;
}

void mp_server::on_drained() {
  drained_ = true;
  for (auto& promise : drain_promises_)
    promise.deliver(front_door_drained{});
  drain_promises_.clear();
}

/// Promises hold their actor: what is not answered now would keep it.
void mp_server::on_exit() {
  workers_.stop();
  for (auto& promise : drain_promises_)
    promise.deliver(caf::make_error(errc::peer_unreachable));
  drain_promises_.clear();
}

} // namespace kvasir
