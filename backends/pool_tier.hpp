// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/eviction_policy.hpp"
#include "backends/memory_tier.hpp"
#include "backends/object_table.hpp"
#include "backends/slot_allocator.hpp"
#include "backends/tenant_table.hpp"

#include <memory>
#include <vector>

namespace kvasir {

/// The memory tier over one pool: object table, slot allocator and eviction policy. Keeps the
/// books only; it never touches the pool's memory.
class pool_tier final : public memory_tier {
public:
  /// @param capacity_bytes of the pool; nothing is usable before `grow`.
  pool_tier(uint64_t capacity_bytes, std::unique_ptr<eviction_policy> policy);

  caf::expected<reserved_object> reserve(const object_claim& claim,
                                         size_t& evict_budget) override;
  uint64_t memory_bytes(uint64_t size_bytes) const override;
  caf::error publish(object_handle handle, std::optional<uint64_t> checksum,
                     conflict what) override;
  void seal(object_handle handle, uint64_t checksum) override;
  caf::error abort(object_handle handle) override;
  caf::expected<held_object> hold(const object_key& key) override;
  caf::expected<held_object> hold(object_handle handle) override;
  caf::error release(object_handle handle) override;
  bool contains(const object_key& key) override;
  bool present(const object_key& key) const override;
  uint64_t unheld_bytes(const object_key& key) const override;
  bool remove(const object_key& key) override;
  void drop(object_handle handle) override;
  void clear(const std::vector<object_handle>& keep) override;
  bool sweep() override;
  object_list list(uint64_t cursor) const override;
  void report_changes(std::vector<object_change>* changes) override;
  void grow(uint64_t usable_bytes) override;
  caf::error set_quota(std::string_view tenant, uint64_t limit_bytes) override;
  std::vector<tenant_quota> quotas() const override;
  tier_usage usage() const override;
  std::string audit() const override;

private:
  static object_handle handle_of(uint32_t index, const object_record& record) noexcept;

  /// @returns the record in that state behind `handle`, or `object_table::none`.
  uint32_t resolve(object_handle handle, object_record::state expected) const noexcept;
  uint32_t resolve_published(object_handle handle) const noexcept;
  uint32_t find_readable(const object_key& key) const;
  bool readable(const object_record& record) const noexcept;
  static slot slot_of(uint32_t index, const object_record& record) noexcept;
  uint64_t padded_bytes(const object_record& record) const;
  held_object hold_record(uint32_t index);

  eviction_policy& policy_of(const object_record& record) {
    return tenants_.policy(record.tenant);
  }

  /// Memory for a claim, its tenant's limit kept. Errors: as `reserve`.
  caf::expected<slot_allocator::block> make_room(const object_claim& claim,
                                                 size_t& evict_budget);

  /// Whether nothing but the policy's choice stands between this object and eviction.
  static bool evictable(const object_record& record) noexcept;

  /// The complete object that has this one as a child, or `none`.
  uint32_t parent_of(const object_record& record) const noexcept;
  void join_parent(object_record& child, uint64_t parent_hash);
  void leave_parent(object_record& child);

  /// Evicts `victim`, and its neighbours in the pool if free memory lies scattered.
  /// @returns the number of objects evicted, at most `limit` (at least 1).
  size_t evict(uint32_t victim, uint64_t wanted_bytes, size_t limit);
  void evict_one(uint32_t index);
  bool scattered() const noexcept;

  /// A neighbour in the pool that may be evicted, the smaller one; `none` if neither may.
  uint32_t neighbour_of(uint32_t index) const;

  /// Complete -> evicting, and on to absent if nobody holds it.
  void retire(uint32_t index);
  void free_record(uint32_t index);
  void report(const object_record& record, bool stored);

  /// By record, counted from the children's side.
  std::vector<uint32_t> count_children() const;

  object_table table_;
  slot_allocator allocator_;
  chunked_array<uint32_t> object_at_; ///< Record by the allocator's handle.
  tenant_table tenants_;
  eviction_policy::held_predicate is_held_;
  uint32_t epoch_ = 0;
  uint32_t sweep_cursor_ = object_table::none; ///< none: nothing to sweep.
  tier_usage usage_;
  std::vector<object_change>* changes_ = nullptr;
};

} // namespace kvasir
