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

class hold_board;
class object_index;

/// The memory tier over one pool: object table, slot allocator and eviction policy. Keeps the
/// books only; it never touches the pool's memory.
///
/// Shared with engines of the host (`share`): they find chunks in the index and hold them by the
/// board, both without asking. An object that one of them reads is passed over by eviction, as if
/// it had just been used; if it is removed, cleared or dropped it is out of sight at once, and its
/// memory stays in limbo until it is read no more. Nobody tells this tier: it looks when it lacks
/// room, and when told to (`revisit`).
class pool_tier final : public memory_tier {
public:
  /// @param capacity_bytes of the pool; nothing is usable before `grow`.
  pool_tier(uint64_t capacity_bytes, std::unique_ptr<eviction_policy> policy);

  /// From now on lists chunks (objects whose key starts with a NUL byte) in `index` and asks
  /// `board` who reads them; both must outlive this. @pre there is no object yet.
  void share(object_index& index, hold_board& board);

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
  void revisit() override;
  bool in_limbo() const override { return !limbo_.empty(); }
  object_list list(uint64_t cursor) const override;
  void report_changes(std::vector<object_change>* changes) override;
  void grow(uint64_t usable_bytes) override;
  caf::error set_quota(std::string_view tenant, uint64_t limit_bytes) override;
  std::vector<tenant_quota> quotas() const override;
  tier_usage usage() const override;
  std::string audit() const override;

private:
  static constexpr size_t max_skips = 256;

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

  /// What one allocation may still do.
  struct effort {
    size_t& evictions; ///< Including those that are skipped.
    size_t skips = max_skips;
    std::vector<uint32_t> spared{}; ///< Engines read these. They go back as ones just used.
    bool looked = false;            ///< At what engines let go and touched.
  };

  /// Memory for a claim, its tenant's limit kept. Errors: as `reserve`.
  caf::expected<slot_allocator::block> make_room(const object_claim& claim,
                                                 size_t& evict_budget);
  caf::expected<slot_allocator::block> make_room(const object_claim& claim, effort& left);

  /// Whether nothing but the policy's choice stands between this object and eviction.
  static bool evictable(const object_record& record) noexcept;

  /// The complete object that has this one as a child, or `none`.
  uint32_t parent_of(const object_record& record) const noexcept;
  void join_parent(object_record& child, uint64_t parent_hash);
  void leave_parent(object_record& child);

  /// Evicts `victim`, and its neighbours in the pool if free memory lies scattered.
  void evict(uint32_t victim, uint64_t wanted_bytes, effort& left);

  /// @returns false if an engine reads it: then it stays.
  bool evict_one(uint32_t index, effort& left);
  bool scattered() const noexcept;

  /// A neighbour in the pool that may be evicted, the smaller one; `none` if neither may.
  uint32_t neighbour_of(uint32_t index) const;

  /// Complete -> evicting, and on to absent if nobody holds it.
  void retire(uint32_t index);
  void hide(uint32_t index);

  /// Evicting -> absent, unless somebody holds it.
  void let_go(uint32_t index);
  void free_record(uint32_t index);
  void report(const object_record& record, bool stored);

  // pool_tier_sharing.cpp
  void enlist(uint32_t index);
  void unlist(object_record& record);
  static bool is_listed(const object_record& record) noexcept;
  bool held_by_engine(uint32_t index) const;

  /// Learns what engines touched and let go, once per allocation. @returns whether it did.
  bool look_around(effort& left);
  void revisit(size_t limit);
  void add_sharing(tier_usage& usage) const;
  std::string audit_sharing() const;

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
  object_index* index_ = nullptr; ///< Null, as `board_`: not shared.
  hold_board* board_ = nullptr;
  std::vector<uint32_t> limbo_; ///< Evicting, held by engines only.
  size_t limbo_cursor_ = 0;
  std::vector<object_change>* changes_ = nullptr;
};

} // namespace kvasir
