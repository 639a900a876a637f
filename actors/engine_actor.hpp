// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/engine_messages.hpp"

#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace kvasir {

/// One worker of an engine, known by its instance id: layout, transfers under way, liveness.
/// Handlers never block.
using engine_actor = caf::typed_actor<
  /// Errors: `layout_mismatch` while other instances use another layout for this model.
  caf::replies_to<register_engine>::with<void>, caf::replies_to<unregister_engine>::with<void>,
  caf::replies_to<engine_ping>::with<void>,
  /// Errors of all transfers: `not_found` if the instance is not registered (any more),
  /// `layout_mismatch` if its layout was replaced meanwhile, `invalid_argument` for a range that
  /// does not lie on chunks.
  caf::replies_to<prepare_store>::with<store_plan>,
  caf::replies_to<commit_store>::with<store_outcome>,
  caf::replies_to<begin_inline_store>::with<inline_store_plan>,
  caf::replies_to<finish_inline_store>::with<store_outcome>,
  caf::replies_to<prepare_retrieve>::with<retrieve_plan>,
  caf::reacts_to<finish_inline_retrieve>, caf::replies_to<commit_retrieve>::with<void>,
  caf::reacts_to<attach_seen>, caf::reacts_to<engine_disconnected>,
  caf::replies_to<check_liveness>::with<liveness>, caf::reacts_to<fence_engine>,
  caf::replies_to<get_engine_status>::with<engine_status>>;

} // namespace kvasir
