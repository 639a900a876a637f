// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/transfer_strategy.hpp"

#include <functional>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// What an engine's strategies share.
struct transfer_books {
  engine_actor::pointer self = nullptr; ///< The engine's actor, which outlives them.
  const instance_options* options = nullptr;
  mp::kv_layout layout;
  object_layout stored_as; ///< The same, as objects carry it.
  uint64_t chunk_bytes = 0;
  engine_status counters; ///< Only its counters are used.
};

/// The bytes travel in the message: whoever owns the socket copies them between it and the slots,
/// and says when it is done. Until then the slots stay held, whatever becomes of the engine.
class inline_transfer final : public transfer_strategy {
public:
  explicit inline_transfer(transfer_books& books);

  /// Nothing to reserve: what will be sent is not known yet.
  void prepare_store(transfer_job job, caf::typed_response_promise<store_plan> answer) override;

  /// A commit without data: nothing was stored.
  void commit_store(transfer_job job,
                    caf::typed_response_promise<store_outcome> answer) override;

  void prepare_retrieve(transfer_job job,
                        caf::typed_response_promise<retrieve_plan> answer) override;
  void commit_retrieve(const transfer_job&) override {}

  /// Tells the slots, too: perhaps the engine maps the pool.
  /// @param on_failure is called before a plan without success is delivered
  void prepare_retrieve_with_slots(transfer_job job, std::function<void()> on_failure,
                                   caf::typed_response_promise<retrieve_plan> answer);

  /// Reserves the chunks that came in the right shape and are not resident yet.
  void begin_store(transfer_job job, const std::vector<inline_tensor>& came,
                   caf::typed_response_promise<inline_store_plan> answer);
  void finish_store(const finish_inline_store& done,
                    caf::typed_response_promise<store_outcome> answer);
  void finish_retrieve(const finish_inline_retrieve& done);

  /// No copy is under way.
  bool idle() const { return stores_.empty() && retrieves_.empty(); }

private:
  struct store {
    transfer_job job;
    std::vector<chunk_slot> slots;
  };

  /// @param fitting for each chunk that came, whether it has the slots' shape
  void on_reserved(transfer_job job, const std::vector<bool>& fitting,
                   const chunk_reservations& reserved,
                   caf::typed_response_promise<inline_store_plan>& answer);
  bool fits(const inline_tensor& came) const;
  void acquire(transfer_job job, bool give_slots, std::function<void()> on_failure,
               caf::typed_response_promise<retrieve_plan> answer);

  transfer_books& books_;
  owner_id owner_; ///< Of the leases of copies under way: never ended as a whole.
  uint64_t last_transfer_ = 0;
  std::unordered_map<uint64_t, store> stores_;
  std::unordered_map<uint64_t, std::vector<lease_id>> retrieves_;
};

/// Tells the observer, if there is one, what the chunks of `job` are made of.
void describe(transfer_books& books, transfer_job& job);

/// Publishes `writes` and answers whether all chunks of `job` are resident now.
/// @param reader who will hash them; 0: they have their checksums.
void publish(transfer_books& books, transfer_job job, std::vector<finish_write> writes,
             owner_id reader, caf::typed_response_promise<store_outcome> answer);

} // namespace kvasir
