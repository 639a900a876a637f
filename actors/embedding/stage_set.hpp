// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_calls.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace kvasir {

class commit_call;

/// Chunks that are reserved while their layers are written one by one. What is not committed is
/// given back when the last user is gone, so never while a put still writes.
///
/// Threading: any thread.
class stage_set {
public:
  stage_set(std::shared_ptr<engine_core> core, std::vector<object_key> keys,
            chunk_reservations reserved);
  ~stage_set();
  stage_set(const stage_set&) = delete;
  stage_set& operator=(const stage_set&) = delete;

  /// All chunks asked for, reserved or not.
  size_t size() const noexcept { return reserved_.size(); }

  /// Where chunk `i` is written; nothing if it need not, or can not, be stored.
  std::optional<slot> where(size_t i) const;

  /// A put of this layer begins. @returns none, or why it must not:
  ///   `invalid_argument` if the layer is out of range or was put before, `not_reserved` once it
  ///   is being committed.
  caf::error begin_put(size_t layer);

  /// It ended. The first error fails the commit.
  void end_put(caf::error why);

  /// No put may begin any more. @returns false if puts are under way: `waiting` is woken then.
  bool begin_commit(commit_call& waiting);

  /// None, or why nothing can be published. @pre no put is under way
  caf::error incomplete() const;

  /// The leases, to be published or given back by the caller.
  std::vector<write_lease> take_leases();

  const std::vector<object_key>& keys() const noexcept { return keys_; }
  engine_core& core() const noexcept { return *core_; }
  const std::shared_ptr<engine_core>& shared_core() const noexcept { return core_; }

private:
  std::shared_ptr<engine_core> core_;
  std::vector<object_key> keys_;
  std::vector<chunk_reservation> reserved_;
  mutable std::mutex mutex_;
  std::vector<bool> put_; ///< By layer.
  size_t under_way_ = 0;
  caf::error failure_;
  bool committing_ = false;
  bool taken_ = false;
  caf::strong_actor_ptr waiting_; ///< The `commit_call`.
};

/// Reserves for `layer_store`.
class stage_call final : public operation_of<std::shared_ptr<stage_set>> {
public:
  stage_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
             clock::time_point deadline, std::stop_token stop,
             std::shared_ptr<call_sink<std::shared_ptr<stage_set>>> sink, reserve_chunks claim);

private:
  void begin() override { ask<&stage_call::on_reserved>(std::move(claim_)); }
  void on_reserved(chunk_reservations& answer);

  reserve_chunks claim_;
  std::vector<object_key> keys_;
};

/// Waits for the puts under way, hashes, publishes.
class commit_call final : public operation_of<store_result> {
public:
  commit_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
              clock::time_point deadline, std::stop_token stop,
              std::shared_ptr<call_sink<store_result>> sink, std::shared_ptr<stage_set> staged)
    : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
      staged_(std::move(staged)) {}

private:
  void begin() override;
  void woken() override;
  void copy() override;
  void on_finished(chunks_finished& answer);
  void drop_inputs() override { staged_ = nullptr; }

  std::shared_ptr<stage_set> staged_;
  std::vector<write_lease> written_;
};

} // namespace kvasir
