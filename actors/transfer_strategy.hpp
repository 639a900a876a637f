// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/engine_actor.hpp"
#include "actors/storage_manager.hpp"
#include "messages/engine_messages.hpp"

#include <caf/typed_response_promise.hpp>

#include <chrono>
#include <string>

namespace kvasir {

/// Takes notice of the tokens of chunks before they become readable.
using chunk_observer_actor = caf::typed_actor<caf::reacts_to<describe_chunks>>;

struct instance_options {
  storage_manager_actor manager;
  chunk_observer_actor observer; ///< Optional.
  bool shared = false;           ///< The pool has a name that engines can map.
  std::chrono::milliseconds write_ttl{600'000};
  std::chrono::milliseconds reap_after{30'000};
  /// Silence of an instance that never pinged and whose connection stands.
  std::chrono::milliseconds reap_mute_after{3'600'000};
  uint64_t max_handed_out_bytes = 0; ///< Slots that one instance may hold at a time.
};

/// One store or retrieve, with its chunks named.
struct transfer_job {
  std::string id; ///< Pairs prepare with commit: request, range and the last chunk's key.
  std::string tenant;
  resolved_chunks chunks;
};

/// How chunks get from an engine into the pool and back: in two steps, *prepare* and *commit*.
/// Between them the engine copies.
///
/// Threading: belongs to its engine's actor; promises are delivered inside it.
/// Every promise is delivered exactly once.
class transfer_strategy {
public:
  virtual ~transfer_strategy() = default;

  virtual void prepare_store(transfer_job job, caf::typed_response_promise<store_plan> answer)
    = 0;
  virtual void commit_store(transfer_job job, caf::typed_response_promise<store_outcome> answer)
    = 0;
  /// @pre the retrieve was announced
  virtual void prepare_retrieve(transfer_job job,
                                caf::typed_response_promise<retrieve_plan> answer)
    = 0;
  virtual void commit_retrieve(const transfer_job& job) = 0;
};

} // namespace kvasir
