#include "backends/hold_board.hpp"
#include "backends/object_index.hpp"
#include "backends/pool_tier.hpp"
#include "messages/key_digest.hpp"

#include <algorithm>
#include <set>

/// What engines find and hold without asking.
namespace kvasir {

namespace {

/// What one allocation looks at, so that its cost has a bound.
constexpr size_t touches_per_look = 256;
constexpr size_t limbo_per_look = 64;

} // namespace

void pool_tier::share(object_index& index, hold_board& board) {
  index_ = &index;
  board_ = &board;
}

// -- the index --------------------------------------------------------------------------

bool pool_tier::is_listed(const object_record& record) noexcept {
  return record.entry < object_record::refused;
}

/// Keys of lm:// hold no NUL byte.
void pool_tier::enlist(uint32_t index) {
  auto& record = table_[index];
  if (!record.key.starts_with('\0'))
    return;
  record.entry
    = index_
        ->put(digest_of({record.key}), slot_of(index, record), record.checksum, record.sealed)
        .value_or(object_record::refused);
}

void pool_tier::unlist(object_record& record) {
  if (is_listed(record))
    index_->erase(record.entry);
  else if (record.entry == object_record::refused)
    index_->forget(digest_of({record.key}));
  record.entry = object_record::unlisted;
}

// -- the board --------------------------------------------------------------------------

bool pool_tier::held_by_engine(uint32_t index) const {
  auto& record = table_[index];
  return board_ != nullptr && record.key.starts_with('\0')
         && board_->is_held(slot_of(index, record));
}

bool pool_tier::look_around(effort& left) {
  if (board_ == nullptr || left.looked)
    return false;
  left.looked = true;
  board_->drain_touches(touches_per_look, [this](uint32_t entry) {
    auto index = resolve(index_->where(entry).generation, object_record::state::complete);
    if (index != object_table::none)
      policy_of(table_[index]).touch(index);
  });
  revisit(limbo_per_look);
  return true;
}

void pool_tier::revisit() {
  revisit(slice_objects);
}

/// Goes round, so that what is held for long does not hide the others.
void pool_tier::revisit(size_t limit) {
  for (auto n = std::min(limit, limbo_.size()); n > 0; --n) {
    if (limbo_cursor_ >= limbo_.size())
      limbo_cursor_ = 0;
    auto index = limbo_[limbo_cursor_];
    if (held_by_engine(index)) {
      ++limbo_cursor_;
      continue;
    }
    limbo_[limbo_cursor_] = limbo_.back();
    limbo_.pop_back();
    usage_.limbo_bytes -= padded_bytes(table_[index]);
    free_record(index);
  }
}

// -- the whole --------------------------------------------------------------------------

void pool_tier::add_sharing(tier_usage& usage) const {
  usage.indexed_objects = index_->objects();
  usage.overflowed_sets = index_->overflowed_sets();
  usage.index_refused = index_->refused();
  usage.touches = board_->touches();
  usage.touches_overrun = board_->touches_overrun();
}

std::string pool_tier::audit_sharing() const {
  using state = object_record::state;
  std::set<uint32_t> limbo{limbo_.begin(), limbo_.end()};
  if (limbo.size() != limbo_.size())
    return "an object is twice in limbo";
  uint64_t limbo_bytes = 0;
  uint64_t listed = 0;
  for (uint32_t i = 0; i < table_.size(); ++i) {
    auto& record = table_[i];
    if ((record.now == state::evicting && record.holds == 0) != limbo.contains(i))
      return "an object without holds has its memory, or one in limbo has a hold";
    limbo_bytes += limbo.contains(i) ? padded_bytes(record) : 0;
    auto chunk = record.now == state::complete && record.key.starts_with('\0');
    if ((record.entry != object_record::unlisted) != (chunk && index_ != nullptr))
      return "a chunk is not listed, or something else is";
    if (!is_listed(record))
      continue;
    ++listed;
    if (index_->where(record.entry) != slot_of(i, record))
      return "an entry does not lead to its object";
  }
  if (limbo_bytes != usage_.limbo_bytes)
    return "limbo bytes differ from the sum of its slots";
  if (index_ != nullptr && listed != index_->objects())
    return "the index lists what is not there";
  return {};
}

} // namespace kvasir
