// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/mp_door.hpp"
#include "messages/front_door_messages.hpp"

#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <memory>
#include <vector>

namespace kvasir {

/// The MP front door as others see it.
using mp_server_actor
  = caf::typed_actor<caf::replies_to<get_front_door_status>::with<front_door_status>,
                     /// Refuses new requests and answers when none is under way.
                     caf::replies_to<drain_front_door>::with<front_door_drained>,
                     caf::reacts_to<front_door_drained>>;

struct mp_server_config {
  std::unique_ptr<mp_socket> socket;
  std::shared_ptr<io_unit> unit; ///< Its own: no lm:// connection waits for a long prompt.
  session_table_actor sessions;
  mp_options options;
  unsigned copy_threads = 2;
};

/// Owns the door, which lives on its unit's thread, and the threads that copy for it. Stop the
/// unit before the actor.
class mp_server final : public mp_server_actor::base {
public:
  mp_server(caf::actor_config& config, mp_server_config setup);

  behavior_type make_behavior() override;
  void on_exit() override;
  const char* name() const override { return "mp_server"; }

  /// Any thread, while the actor lives.
  const mp_door& door() const { return door_; }

private:
  caf::result<front_door_drained> on_drain(bool at_once);
  void on_drained();

  std::shared_ptr<io_unit> unit_; ///< Outlives the door.
  mp_options options_;
  worker_pool workers_;
  mp_door door_;
  bool draining_ = false;
  bool drained_ = false;
  std::vector<caf::typed_response_promise<front_door_drained>> drain_promises_;
};

} // namespace kvasir
