#include "backends/pool_tier.hpp"

#include "backends/checksum.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace kvasir {

namespace {

uint64_t hash_of(std::string_view key) {
  return checksum(std::as_bytes(std::span{key}));
}

} // namespace

pool_tier::pool_tier(uint64_t capacity_bytes, std::unique_ptr<eviction_policy> policy)
  : allocator_(capacity_bytes),
    policy_(std::move(policy)),
    is_held_([this](uint32_t index) { return !evictable(table_[index]); }) {}

object_handle pool_tier::handle_of(uint32_t index, const object_record& record) noexcept {
  return (object_handle{record.generation} << 32) | index;
}

uint32_t pool_tier::resolve(object_handle handle,
                            object_record::state expected) const noexcept {
  auto index = static_cast<uint32_t>(handle);
  if (index >= table_.size())
    return object_table::none;
  auto& record = table_[index];
  auto same
    = record.generation == static_cast<uint32_t>(handle >> 32) && record.now == expected;
  return same ? index : object_table::none;
}

uint32_t pool_tier::resolve_published(object_handle handle) const noexcept {
  auto index = resolve(handle, object_record::state::complete);
  return index != object_table::none ? index : resolve(handle, object_record::state::evicting);
}

bool pool_tier::readable(const object_record& record) const noexcept {
  return record.now == object_record::state::complete && record.epoch == epoch_;
}

uint32_t pool_tier::find_readable(const object_key& key) const {
  auto index = table_.find(key.bytes, hash_of(key.bytes));
  return index != object_table::none && readable(table_[index]) ? index : object_table::none;
}

/// A record's own generation would not do: another record may be at the same place next.
slot pool_tier::slot_of(uint32_t index, const object_record& record) noexcept {
  return {record.offset_bytes, record.size_bytes, handle_of(index, record)};
}

uint64_t pool_tier::memory_bytes(uint64_t size_bytes) const {
  return slot_allocator::rounded_bytes(size_bytes);
}

uint64_t pool_tier::padded_bytes(const object_record& record) const {
  return memory_bytes(record.size_bytes);
}

// -- writing ----------------------------------------------------------------------------

caf::expected<reserved_object> pool_tier::reserve(const object_claim& claim,
                                                  size_t& evict_budget) {
  const auto size_bytes = claim.size_bytes;
  if (memory_bytes(size_bytes) > allocator_.usable_bytes())
    return caf::make_error(errc::too_large);
  auto block = allocator_.allocate(size_bytes);
  while (!block) {
    if (evict_budget == 0)
      return caf::make_error(errc::busy);
    auto victim = policy_->victim(is_held_);
    if (!victim)
      return caf::make_error(errc::out_of_memory);
    evict_budget -= evict(*victim, size_bytes, evict_budget);
    block = allocator_.allocate(size_bytes);
  }
  auto index = table_.take();
  auto& record = table_[index];
  record.key = claim.key.bytes;
  record.key_hash = hash_of(record.key);
  record.layout = claim.layout;
  record.checksum = claim.parent.empty() ? 0 : hash_of(claim.parent);
  record.offset_bytes = block->offset_bytes;
  record.size_bytes = size_bytes;
  record.block = block->handle;
  object_at_.ensure(block->handle);
  object_at_[block->handle] = index;
  record.now = object_record::state::reserved;
  return reserved_object{handle_of(index, record), slot_of(index, record)};
}

caf::error pool_tier::publish(object_handle handle, std::optional<uint64_t> checksum,
                              conflict what) {
  auto index = resolve(handle, object_record::state::reserved);
  if (index == object_table::none)
    return caf::make_error(errc::not_reserved);
  auto& record = table_[index];
  auto former = table_.find(record.key, record.key_hash);
  if (former != object_table::none) {
    if (readable(table_[former])) {
      if (what == conflict::keep) {
        free_record(index);
        return caf::make_error(errc::already_exists);
      }
      --usage_.objects;
      ++usage_.replaced;
    }
    retire(former);
  }
  join_parent(record, record.checksum);
  record.checksum = checksum.value_or(0);
  record.sealed = checksum.has_value();
  record.epoch = epoch_;
  record.now = object_record::state::complete;
  table_.insert(index);
  policy_->insert(index, padded_bytes(record), record.key_hash);
  ++usage_.objects;
  ++usage_.published;
  report(record, true);
  return caf::none;
}

void pool_tier::seal(object_handle handle, uint64_t checksum) {
  auto index = resolve_published(handle);
  if (index == object_table::none || table_[index].sealed)
    return;
  table_[index].checksum = checksum;
  table_[index].sealed = true;
}

caf::error pool_tier::abort(object_handle handle) {
  auto index = resolve(handle, object_record::state::reserved);
  if (index == object_table::none)
    return caf::make_error(errc::not_reserved);
  free_record(index);
  return caf::none;
}

// -- reading ----------------------------------------------------------------------------

held_object pool_tier::hold_record(uint32_t index) {
  auto& record = table_[index];
  if (record.holds++ == 0)
    usage_.held_bytes += padded_bytes(record);
  return {handle_of(index, record), slot_of(index, record), record.layout, record.checksum,
          record.sealed};
}

caf::expected<held_object> pool_tier::hold(const object_key& key) {
  auto index = find_readable(key);
  if (index == object_table::none)
    return caf::make_error(errc::not_found);
  policy_->touch(index);
  return hold_record(index);
}

caf::expected<held_object> pool_tier::hold(object_handle handle) {
  auto index = resolve(handle, object_record::state::complete);
  if (index == object_table::none || !readable(table_[index]))
    return caf::make_error(errc::not_found);
  return hold_record(index);
}

caf::error pool_tier::release(object_handle handle) {
  auto index = resolve_published(handle);
  if (index == object_table::none || table_[index].holds == 0)
    return caf::make_error(errc::not_reserved);
  auto& record = table_[index];
  if (--record.holds > 0)
    return caf::none;
  usage_.held_bytes -= padded_bytes(record);
  if (record.now == object_record::state::evicting)
    free_record(index);
  else if (record.children == 0)
    policy_->release(index);
  return caf::none;
}

bool pool_tier::contains(const object_key& key) {
  auto index = find_readable(key);
  if (index == object_table::none)
    return false;
  policy_->touch(index);
  return true;
}

bool pool_tier::present(const object_key& key) const {
  return find_readable(key) != object_table::none;
}

uint64_t pool_tier::unheld_bytes(const object_key& key) const {
  auto index = find_readable(key);
  return index == object_table::none || table_[index].holds > 0 ? 0
                                                                : padded_bytes(table_[index]);
}

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
    policy_->park(index);
}

void pool_tier::leave_parent(object_record& child) {
  auto index = parent_of(child);
  child.parent_generation = 0;
  if (index == object_table::none)
    return;
  auto& parent = table_[index];
  if (--parent.children == 0 && parent.holds == 0)
    policy_->release(index, eviction_policy::reentry::next);
}

// -- evicting ---------------------------------------------------------------------------

bool pool_tier::evictable(const object_record& record) noexcept {
  return record.now == object_record::state::complete && record.holds == 0
         && record.children == 0;
}

void pool_tier::evict_one(uint32_t index) {
  auto& record = table_[index];
  if (readable(record)) {
    --usage_.objects;
    ++usage_.evicted_objects;
    usage_.evicted_bytes += padded_bytes(record);
  }
  retire(index);
}

/// A sixteenth of the pool is free, and yet the last allocation failed: going on in the
/// policy's order would empty ever more of the pool until a long run appears by chance. With
/// sizes from 64 KiB to 32 MiB that leaves 44 % of the pool unused at worst; evicting the
/// victim's neighbours from here on leaves 7 % (tests/bench/fragmentation.cpp).
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

size_t pool_tier::evict(uint32_t victim, uint64_t wanted_bytes, size_t limit) {
  auto wanted = slot_allocator::rounded_bytes(wanted_bytes);
  auto spread = scattered();
  size_t count = 0;
  for (auto next = victim; next != object_table::none;) {
    auto neighbour = spread && count + 1 < limit ? neighbour_of(next) : object_table::none;
    evict_one(next);
    ++count;
    if (allocator_.largest_free_bytes() >= wanted)
      break;
    next = neighbour;
  }
  return count;
}

// -- removing ---------------------------------------------------------------------------

void pool_tier::retire(uint32_t index) {
  auto& record = table_[index];
  table_.erase(index);
  policy_->remove(index);
  leave_parent(record);
  record.children = 0;
  record.now = object_record::state::evicting;
  report(record, false);
  if (record.holds == 0)
    free_record(index);
}

void pool_tier::free_record(uint32_t index) {
  allocator_.free(table_[index].block);
  table_.give_back(index);
}

void pool_tier::report_changes(std::vector<object_change>* changes) {
  changes_ = changes;
}

/// Keys of lm:// hold no NUL byte.
void pool_tier::report(const object_record& record, bool stored) {
  if (changes_ != nullptr && record.key.starts_with('\0'))
    changes_->push_back({object_key{record.key}, stored});
}

bool pool_tier::remove(const object_key& key) {
  auto index = find_readable(key);
  if (index == object_table::none)
    return false;
  --usage_.objects;
  ++usage_.removed;
  retire(index);
  return true;
}

void pool_tier::drop(object_handle handle) {
  auto index = resolve(handle, object_record::state::complete);
  if (index == object_table::none)
    return;
  if (readable(table_[index])) {
    --usage_.objects;
    ++usage_.removed;
  }
  retire(index);
}

void pool_tier::clear(const std::vector<object_handle>& keep) {
  auto before = epoch_++;
  uint64_t kept = 0;
  for (auto handle : keep) {
    auto index = resolve(handle, object_record::state::complete);
    if (index == object_table::none || table_[index].epoch != before)
      continue;
    table_[index].epoch = epoch_;
    ++kept;
  }
  usage_.removed += std::exchange(usage_.objects, kept) - kept;
  sweep_cursor_ = 0;
}

bool pool_tier::sweep() {
  if (sweep_cursor_ == object_table::none)
    return false;
  auto end = std::min<uint64_t>(table_.size(), uint64_t{sweep_cursor_} + slice_objects);
  for (; sweep_cursor_ < end; ++sweep_cursor_) {
    auto& record = table_[sweep_cursor_];
    if (record.now == object_record::state::complete && record.epoch != epoch_)
      retire(sweep_cursor_);
  }
  if (sweep_cursor_ == table_.size())
    sweep_cursor_ = object_table::none;
  return sweep_cursor_ != object_table::none;
}

object_list pool_tier::list(uint64_t cursor) const {
  object_list result;
  auto end = std::min<uint64_t>(table_.size(), cursor + slice_objects);
  for (; cursor < end; ++cursor) {
    auto& record = table_[static_cast<uint32_t>(cursor)];
    if (readable(record))
      result.objects.push_back({object_key{record.key}, record.size_bytes});
  }
  result.next_cursor = cursor < table_.size() ? cursor : 0;
  return result;
}

// -- the whole --------------------------------------------------------------------------

void pool_tier::grow(uint64_t usable_bytes) {
  allocator_.extend(usable_bytes);
}

tier_usage pool_tier::usage() const {
  auto result = usage_;
  result.capacity_bytes = allocator_.capacity_bytes();
  result.usable_bytes = allocator_.usable_bytes();
  result.used_bytes = allocator_.used_bytes();
  return result;
}

} // namespace kvasir
