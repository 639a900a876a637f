// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/eviction_policy.hpp"
#include "backends/ghost_table.hpp"
#include "backends/object_queue.hpp"

#include <memory>
#include <utility>

namespace kvasir {

/// S3-FIFO: new objects enter a small queue (10 % of the bytes), those read more than once
/// there move to the main queue, those evicted from it leave their hash in a ghost; an object
/// whose hash is in the ghost goes to the main queue at once. A scan passes through the small
/// queue and leaves the main one alone. A read only raises a 2-bit count: no list is touched.
///
/// One call of `victim` gives at most 1024 objects their second chance, then takes the next
/// candidate whatever its count: when everything is hot, a choice is not worth a pause.
///
/// 10 % is meant of what is queued now, which is the whole cache when something must go; so the
/// policy needs no capacity and follows a pool that grows.
///
/// Threading, blocking, errors: as `eviction_policy`. Memory: 24 bytes per number, and the
/// ghost: at most 8 MiB. Source: Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need
/// (SOSP 2023).
class s3fifo_policy final : public eviction_policy {
public:
  s3fifo_policy() : s3fifo_policy(std::make_shared<records>()) {}

  void insert(object_id id, uint64_t size_bytes, uint64_t key_hash) override;
  void touch(object_id id) override;
  void remove(object_id id) override;
  std::optional<object_id> victim(const held_predicate& is_held) override;
  void park(object_id id) override;
  void release(object_id id, reentry where) override;
  bool is_parked(object_id id) const override;
  uint64_t queued_count() const override { return small_.count() + main_.count(); }
  uint64_t parked_count() const override { return parked_count_; }
  std::unique_ptr<eviction_policy> sibling() const override;
  std::string_view name() const override { return "s3fifo"; }

  /// Hashes remembered at most, and memory taken for them. For tests and metrics.
  const ghost_table& ghost() const { return ghost_; }

private:
  enum class place : uint8_t { absent, small, main, parked_small, parked_main };

  struct entry {
    uint32_t newer = object_queue_end;
    uint32_t older = object_queue_end;
    uint64_t key_hash = 0;
    uint64_t size_bytes : 56 = 0;
    uint64_t frequency : 2 = 0;
    uint64_t where : 6 = 0; // a place
  };

  using queue = object_queue<entry>;

  static constexpr int second_chances_per_call = 1024;

  static place place_of(const entry& e) { return static_cast<place>(e.where); }
  static void set_place(entry& e, place p) { e.where = static_cast<uint64_t>(p) & 0x3f; }
  using records = chunked_array<entry>;

  explicit s3fifo_policy(std::shared_ptr<records> shared) : shared_(std::move(shared)) {}

  entry* find(object_id id);

  std::shared_ptr<records> shared_; ///< With all siblings.
  records& entries_ = *shared_;
  queue small_{entries_};
  queue main_{entries_};
  uint64_t parked_count_ = 0;
  ghost_table ghost_;
};

} // namespace kvasir
