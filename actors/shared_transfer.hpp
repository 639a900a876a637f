// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/inline_transfer.hpp"

#include <caf/actor_clock.hpp>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// The engine maps the pool and copies itself, from and to slots that it was told.
///
/// What was handed out stays held until the engine commits or is fenced. A commit does not say which
/// prepare of equal transfers it belongs to, and they may end in any order: so what overlaps is kept,
/// and nothing of it published, until each has its commit. A reservation that expired can only be
/// given back by its commit, which is then answered with false.
///
/// Whether an engine could attach the pool nobody says. Until it is known, a retrieve gives slots
/// and bytes; an engine that sends bytes to store them is served inline from then on.
class shared_transfer final : public transfer_strategy {
public:
  shared_transfer(transfer_books& books, inline_transfer& fallback);

  void prepare_store(transfer_job job, caf::typed_response_promise<store_plan> answer) override;
  void commit_store(transfer_job job,
                    caf::typed_response_promise<store_outcome> answer) override;
  void prepare_retrieve(transfer_job job,
                        caf::typed_response_promise<retrieve_plan> answer) override;
  void commit_retrieve(const transfer_job& job) override;

  /// Data came inline: the engine did not touch the slots that it was given.
  void cancel_store(const std::string& id);

  void set_attached(bool attached) { attached_ = attached; }

  /// Ends the reservations whose time is over, all if there is nobody to commit them.
  void expire(bool all);

  /// The engine cannot touch its slots any more.
  void fence();

  uint64_t handed_out_bytes() const { return handed_out_bytes_; }
  uint64_t quarantined_bytes() const { return quarantined_bytes_; }
  size_t pending_writes() const { return write_count_; }
  size_t pending_reads() const { return read_count_; }
  bool idle() const { return write_count_ + read_count_ == 0; }

private:
  using time_point = caf::actor_clock::time_point;

  struct pending {
    uint64_t number = 0;
    std::vector<lease_id> leases;
    uint64_t bytes = 0;
    bool expired = false;
  };
  /// Equal transfers that overlap.
  struct pending_group {
    std::vector<pending> transfers;
    size_t commits = 0; ///< Fewer than transfers.
  };
  using pending_table = std::unordered_map<std::string, pending_group>;

  struct write_end {
    time_point at;
    std::string id;
  };

  /// Whether this instance may not hold so much more.
  bool over_limit(uint64_t more_bytes) const;

  /// @returns the number of what was added.
  uint64_t add(pending_table& to, const std::string& id, std::vector<lease_id> leases,
               uint64_t bytes);

  /// A commit came. @returns all transfers of this id if it was the last one that was missing; their
  /// leases are the caller's to end.
  std::vector<pending> commit(pending_table& from, const std::string& id);

  /// All of this id, or the one with this number; their leases are the caller's to end.
  std::vector<pending> take(pending_table& from, const std::string& id);
  std::vector<pending> take(pending_table& from, const std::string& id, uint64_t number);

  /// Strikes one that was taken from the books.
  void strike(const pending_table& from, const pending& taken);
  void end(std::vector<lease_id> leases);
  void end(const std::vector<pending>& taken);
  void on_acquired(transfer_job job, chunks_acquired& acquired, uint64_t chunk_bytes,
                   caf::typed_response_promise<retrieve_plan> answer);

  transfer_books& books_;
  inline_transfer& fallback_;
  owner_id owner_;
  bool attached_ = false; ///< It is known that the engine maps the pool.
  pending_table writes_;
  pending_table reads_;
  std::map<uint64_t, write_end> write_ends_; ///< By number, and so in the order of their time.
  uint64_t last_number_ = 0;
  size_t write_count_ = 0;
  size_t read_count_ = 0;
  uint64_t asked_bytes_ = 0; ///< On their way: asked for, and no answer came yet.
  uint64_t handed_out_bytes_ = 0;
  uint64_t quarantined_bytes_ = 0; ///< Part of those handed out.
};

} // namespace kvasir
