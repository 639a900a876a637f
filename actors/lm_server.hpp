// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/acceptor.hpp"
#include "actors/lm_door.hpp"
#include "messages/front_door_messages.hpp"

#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <memory>
#include <vector>

namespace kvasir {

using lm_server_actor
  = caf::typed_actor<caf::replies_to<get_front_door_status>::with<front_door_status>,
                     /// Stops accepting, lets requests under way finish, answers when no
                     /// connection is left. The asker's deadline decides how long that may
                     /// take.
                     caf::replies_to<drain_front_door>::with<front_door_drained>,
                     caf::reacts_to<front_door_drained>>;

struct lm_server_config {
  listening_sockets listening;
  std::vector<std::shared_ptr<io_unit>> units; ///< At least one.
  storage_manager_actor manager;
  std::byte* pool = nullptr;
  lm_options options;
};

/// The lm:// front door: accepts on one unit, spreads connections over all, counts, drains.
///
/// The actor itself holds no connection: they live on the units' threads, each in its unit's
/// shard. Stop the units before the actor.
class lm_server final : public lm_server_actor::base {
public:
  lm_server(caf::actor_config& config, lm_server_config setup);

  behavior_type make_behavior() override;
  void on_exit() override;
  const char* name() const override { return "lm_server"; }

private:
  front_door_status status() const;
  caf::result<front_door_drained> on_drain(bool at_once);
  void stop_accepting();
  void on_drained();
  void on_all_drained();
  void accept(socket_handle socket);

  lm_server_config setup_;
  std::vector<std::unique_ptr<lm_shard>> shards_;
  std::vector<std::unique_ptr<acceptor>> acceptors_;
  std::atomic<uint64_t> refused_{0};
  std::atomic<size_t> next_shard_{0};
  bool draining_ = false;
  size_t shards_left_ = 0;
  std::vector<caf::typed_response_promise<front_door_drained>> drain_promises_;
};

} // namespace kvasir
