// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/eviction_policy.hpp"
#include "backends/object_queue.hpp"

#include <memory>
#include <utility>

namespace kvasir {

/// Evicts what was not read for longest. Simple to reason about, but a scan larger than the
/// cache empties it, and each read moves a list node.
///
/// Threading, blocking, errors: as `eviction_policy`. Memory: 24 bytes per number.
class lru_policy final : public eviction_policy {
public:
  lru_policy() : lru_policy(std::make_shared<records>()) {}

  void insert(object_id id, uint64_t size_bytes, uint64_t key_hash) override;
  void touch(object_id id) override;
  void remove(object_id id) override;
  std::optional<object_id> victim(const held_predicate& is_held) override;
  void park(object_id id) override;
  void release(object_id id, reentry where) override;
  bool is_parked(object_id id) const override;
  uint64_t queued_count() const override { return queue_.count(); }
  uint64_t parked_count() const override { return parked_count_; }
  std::unique_ptr<eviction_policy> sibling() const override;
  std::string_view name() const override { return "lru"; }

private:
  enum class place : uint8_t { absent, queued, parked };

  struct entry {
    uint32_t newer = object_queue_end;
    uint32_t older = object_queue_end;
    uint64_t size_bytes = 0;
    place where = place::absent;
  };

  using records = chunked_array<entry>;

  explicit lru_policy(std::shared_ptr<records> shared) : shared_(std::move(shared)) {}

  entry* find(object_id id);

  std::shared_ptr<records> shared_; ///< With all siblings.
  records& entries_ = *shared_;
  object_queue<entry> queue_{entries_};
  uint64_t parked_count_ = 0;
};

} // namespace kvasir
