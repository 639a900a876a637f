#include "backends/hold_board.hpp"
#include "backends/object_index.hpp"
#include "backends/pool_tier.hpp"

#include <optional>

/// Who gives way to whom.
namespace kvasir {

// -- parents ----------------------------------------------------------------------------

uint32_t pool_tier::parent_of(const object_record& record) const noexcept {
  if (record.parent_generation == 0)
    return object_table::none;
  auto& parent = table_[record.parent];
  auto lives = parent.generation == record.parent_generation
               && parent.now == object_record::state::complete;
  return lives ? record.parent : object_table::none;
}

/// The link goes to an object that was published earlier, so there are no cycles. Two keys of
/// one hash would cost an object its place in the order of eviction, no more.
void pool_tier::join_parent(object_record& child, uint64_t parent_hash) {
  auto index = parent_hash == 0 ? object_table::none : table_.find(parent_hash);
  if (index == object_table::none || !readable(table_[index]))
    return;
  auto& parent = table_[index];
  child.parent = index;
  child.parent_generation = parent.generation;
  if (++parent.children == 1)
    policy_of(parent).park(index);
}

void pool_tier::leave_parent(object_record& child) {
  auto index = parent_of(child);
  child.parent_generation = 0;
  if (index == object_table::none)
    return;
  auto& parent = table_[index];
  if (--parent.children == 0 && parent.holds == 0)
    policy_of(parent).release(index, eviction_policy::reentry::next);
}

// -- evicting ---------------------------------------------------------------------------

caf::expected<slot_allocator::block> pool_tier::make_room(const object_claim& claim,
                                                          size_t& evict_budget) {
  effort left{evict_budget};
  auto block = make_room(claim, left);
  for (auto index : left.spared)
    if (auto& record = table_[index]; evictable(record))
      policy_of(record).insert(index, padded_bytes(record), record.key_hash);
  return block;
}

caf::expected<slot_allocator::block> pool_tier::make_room(const object_claim& claim,
                                                          effort& left) {
  if (auto tenant = tenants_.limited(claim.tenant)) {
    auto wanted = memory_bytes(claim.size_bytes);
    auto limit = tenants_.limit_bytes(*tenant);
    if (wanted > limit)
      return caf::make_error(errc::out_of_memory);
    while (tenants_.used_bytes(*tenant) > limit - wanted) {
      if (look_around(left))
        continue;
      if (left.evictions == 0)
        return caf::make_error(errc::busy);
      auto victim = tenants_.policy(*tenant).victim(is_held_);
      if (!victim)
        return caf::make_error(errc::out_of_memory);
      evict_one(*victim, left);
      if (left.skips == 0)
        return caf::make_error(errc::out_of_memory);
    }
  }
  for (;;) {
    if (auto block = allocator_.allocate(claim.size_bytes))
      return *block;
    if (look_around(left))
      continue;
    if (left.evictions == 0)
      return caf::make_error(errc::busy);
    auto largest = tenants_.largest();
    if (largest == nullptr)
      return caf::make_error(errc::out_of_memory);
    // Without a victim all it had is held now and it is largest no more: the next one's turn.
    if (auto victim = largest->victim(is_held_))
      evict(*victim, claim.size_bytes, left);
    if (left.skips == 0) // Engines read too much of it to go on looking for the rest.
      return caf::make_error(errc::out_of_memory);
  }
}

bool pool_tier::evictable(const object_record& record) noexcept {
  return record.now == object_record::state::complete && record.holds == 0
         && record.children == 0;
}

/// The order counts: out of sight first, then the look at the board, then the end
/// (docs/decisions/0011).
bool pool_tier::evict_one(uint32_t index, effort& left) {
  auto& record = table_[index];
  --left.evictions;
  if (is_listed(record)) {
    index_->freeze(record.entry);
    if (board_->is_held(slot_of(index, record))) {
      index_->thaw(record.entry);
      policy_of(record).remove(index); // Until the allocation ends: nothing is looked at twice.
      left.spared.push_back(index);
      --left.skips;
      ++usage_.skipped_evictions;
      return false;
    }
  }
  if (readable(record)) {
    --usage_.objects;
    ++usage_.evicted_objects;
    usage_.evicted_bytes += padded_bytes(record);
  }
  hide(index);
  free_record(index);
  return true;
}

/// A sixteenth of the pool is free, and yet the last allocation failed: going on in the
/// policy's order would empty ever more of the pool until a long run appears by chance. With
/// sizes from 64 KiB to 32 MiB that leaves 44 % of the pool unused at worst; evicting the
/// victim's neighbours, whoever's they are, from here on leaves 7 % (tests/bench/fragmentation.cpp).
bool pool_tier::scattered() const noexcept {
  return allocator_.usable_bytes() - allocator_.used_bytes() >= allocator_.usable_bytes() / 16;
}

uint32_t pool_tier::neighbour_of(uint32_t index) const {
  auto candidate = [this](std::optional<uint32_t> block) {
    return block && evictable(table_[object_at_[*block]]) ? object_at_[*block]
                                                          : object_table::none;
  };
  auto before = candidate(allocator_.used_before(table_[index].block));
  auto after = candidate(allocator_.used_after(table_[index].block));
  if (before == object_table::none || after == object_table::none)
    return before == object_table::none ? after : before;
  return table_[before].size_bytes < table_[after].size_bytes ? before : after;
}

void pool_tier::evict(uint32_t victim, uint64_t wanted_bytes, effort& left) {
  auto wanted = slot_allocator::rounded_bytes(wanted_bytes);
  auto spread = scattered();
  for (auto next = victim; next != object_table::none;) {
    auto neighbour = spread && left.evictions > 1 ? neighbour_of(next) : object_table::none;
    if (!evict_one(next, left) || allocator_.largest_free_bytes() >= wanted)
      return;
    next = neighbour;
  }
}

} // namespace kvasir
