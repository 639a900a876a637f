#include "backends/pool_tier.hpp"

#include "backends/checksum.hpp"
#include "backends/object_index.hpp"

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
    tenants_(std::move(policy)),
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
  auto block = make_room(claim, evict_budget);
  if (!block)
    return std::move(block.error());
  auto index = table_.take();
  auto& record = table_[index];
  record.key = claim.key.bytes;
  record.key_hash = hash_of(record.key);
  record.layout = claim.layout;
  record.tenant = tenants_.open(claim.tenant);
  tenants_.add_bytes(record.tenant, memory_bytes(size_bytes));
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
  policy_of(record).insert(index, padded_bytes(record), record.key_hash);
  ++usage_.objects;
  ++usage_.published;
  if (index_ != nullptr)
    enlist(index);
  report(record, true);
  return caf::none;
}

void pool_tier::seal(object_handle handle, uint64_t checksum) {
  auto index = resolve_published(handle);
  if (index == object_table::none || table_[index].sealed)
    return;
  auto& record = table_[index];
  record.checksum = checksum;
  record.sealed = true;
  if (is_listed(record))
    index_->seal(record.entry, checksum);
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
  policy_of(table_[index]).touch(index);
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
    let_go(index);
  else if (record.children == 0)
    policy_of(record).release(index);
  return caf::none;
}

bool pool_tier::contains(const object_key& key) {
  auto index = find_readable(key);
  if (index == object_table::none)
    return false;
  policy_of(table_[index]).touch(index);
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

// -- removing ---------------------------------------------------------------------------

void pool_tier::retire(uint32_t index) {
  hide(index);
  let_go(index);
}

void pool_tier::hide(uint32_t index) {
  auto& record = table_[index];
  table_.erase(index);
  policy_of(record).remove(index);
  leave_parent(record);
  record.children = 0;
  record.now = object_record::state::evicting;
  unlist(record);
  report(record, false);
}

void pool_tier::let_go(uint32_t index) {
  if (table_[index].holds > 0)
    return;
  if (!held_by_engine(index))
    return free_record(index);
  usage_.limbo_bytes += padded_bytes(table_[index]);
  limbo_.push_back(index);
}

void pool_tier::free_record(uint32_t index) {
  auto& record = table_[index];
  allocator_.free(record.block);
  tenants_.remove_bytes(record.tenant, padded_bytes(record));
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
  if (index_ != nullptr)
    index_->clear();
  for (auto handle : keep) {
    auto index = resolve(handle, object_record::state::complete);
    if (index == object_table::none || table_[index].epoch != before)
      continue;
    table_[index].epoch = epoch_;
    if (is_listed(table_[index]))
      index_->keep(table_[index].entry);
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

caf::error pool_tier::set_quota(std::string_view tenant, uint64_t limit_bytes) {
  return tenants_.set_limit(tenant, limit_bytes) ? caf::none : caf::make_error(errc::busy);
}

std::vector<tenant_quota> pool_tier::quotas() const {
  return tenants_.list();
}

tier_usage pool_tier::usage() const {
  auto result = usage_;
  result.capacity_bytes = allocator_.capacity_bytes();
  result.usable_bytes = allocator_.usable_bytes();
  result.used_bytes = allocator_.used_bytes();
  if (index_ != nullptr)
    add_sharing(result);
  return result;
}

} // namespace kvasir
