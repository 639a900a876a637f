#include "backends/slot_allocator.hpp"

#include <caf/config.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

namespace kvasir {

slot_allocator::slot_allocator(uint64_t capacity_bytes)
  : capacity_pages_(static_cast<uint32_t>(
    std::min<uint64_t>(capacity_bytes / page_bytes, std::numeric_limits<uint32_t>::max()))) {
  for (auto& level : heads_)
    level.fill(no_block);
}

void slot_allocator::extend(uint64_t usable_bytes) {
  auto pages
    = static_cast<uint32_t>(std::min<uint64_t>(usable_bytes / page_bytes, capacity_pages_));
  if (pages <= usable_pages_)
    return;
  auto added = pages - usable_pages_;
  if (last_ != no_block && is_free(last_)) {
    unlink_free(last_);
    records_[last_].page_count += added;
  } else {
    auto handle = new_record();
    records_[handle] = record{usable_pages_, added, last_, no_block, no_block, no_block};
    if (last_ != no_block)
      records_[last_].after = handle;
    last_ = handle;
  }
  link_free(last_);
  usable_pages_ = pages;
}

std::optional<slot_allocator::block> slot_allocator::allocate(uint64_t size_bytes) {
  auto pages = round_to_class(pages_of(size_bytes));
  if (pages > usable_pages_)
    return std::nullopt;
  auto count = static_cast<uint32_t>(pages);
  // Every block of this class or a higher one is long enough: `count` is its lower bound.
  auto found = first_filled(class_of(count));
  if (!found)
    return std::nullopt;
  auto handle = heads_[found->level][found->index];
  unlink_free(handle);
  auto& taken = records_[handle];
  if (taken.page_count > count) {
    auto rest = new_record(); // chunks never move: `taken` stays valid
    records_[rest] = record{
      taken.page + count, taken.page_count - count, handle, taken.after, no_block, no_block};
    (taken.after == no_block ? last_ : records_[taken.after].before) = rest;
    taken.after = rest;
    taken.page_count = count;
    link_free(rest);
  }
  taken.prev_free = used_mark;
  used_pages_ += count;
  ++used_count_;
  return at(handle);
}

void slot_allocator::free(uint32_t handle) {
  auto& freed = records_[checked(handle)];
  used_pages_ -= freed.page_count;
  --used_count_;
  auto absorb_after = [this](uint32_t keeper) {
    auto& k = records_[keeper];
    auto gone = k.after;
    auto& g = records_[gone];
    k.page_count += g.page_count;
    k.after = g.after;
    (g.after == no_block ? last_ : records_[g.after].before) = keeper;
    drop_record(gone);
  };
  if (auto after = freed.after; after != no_block && is_free(after)) {
    unlink_free(after);
    absorb_after(handle);
  }
  auto keeper = handle;
  if (auto before = freed.before; before != no_block && is_free(before)) {
    unlink_free(before);
    keeper = before;
    absorb_after(before);
  }
  link_free(keeper);
}

slot_allocator::block slot_allocator::at(uint32_t handle) const {
  const auto& r = records_[checked(handle)];
  return {uint64_t{r.page} * page_bytes, uint64_t{r.page_count} * page_bytes, handle};
}

std::optional<uint32_t> slot_allocator::used_before(uint32_t handle) const {
  auto before = records_[checked(handle)].before;
  if (before != no_block && is_free(before))
    before = records_[before].before; // no two free blocks touch
  return before == no_block ? std::nullopt : std::optional{before};
}

std::optional<uint32_t> slot_allocator::used_after(uint32_t handle) const {
  auto after = records_[checked(handle)].after;
  if (after != no_block && is_free(after))
    after = records_[after].after;
  return after == no_block ? std::nullopt : std::optional{after};
}

uint64_t slot_allocator::rounded_bytes(uint64_t size_bytes) {
  auto pages = round_to_class(pages_of(size_bytes));
  constexpr auto most = std::numeric_limits<uint64_t>::max();
  return pages > most / page_bytes ? most : pages * page_bytes;
}

uint64_t slot_allocator::largest_free_bytes() const {
  if (filled_levels_ == 0)
    return 0;
  auto level = static_cast<uint32_t>(std::bit_width(filled_levels_)) - 1;
  auto index = static_cast<uint32_t>(std::bit_width(filled_classes_[level])) - 1;
  return uint64_t{lower_bound({level, index})} * page_bytes;
}

uint64_t slot_allocator::pages_of(uint64_t size_bytes) {
  return std::max<uint64_t>(size_bytes / page_bytes + (size_bytes % page_bytes != 0), 1);
}

uint64_t slot_allocator::round_to_class(uint64_t page_count) {
  if (page_count < 2 * classes_per_doubling)
    return page_count; // classes of one page each
  auto step = uint64_t{1} << (std::bit_width(page_count) - 7);
  return (page_count + step - 1) & ~(step - 1);
}

slot_allocator::size_class slot_allocator::class_of(uint32_t page_count) {
  if (page_count < classes_per_doubling)
    return {0, page_count};
  auto shift = static_cast<uint32_t>(std::bit_width(page_count)) - 7;
  return {shift + 1, (page_count >> shift) - classes_per_doubling};
}

uint32_t slot_allocator::lower_bound(size_class c) {
  return c.level == 0 ? c.index : (classes_per_doubling + c.index) << (c.level - 1);
}

std::optional<slot_allocator::size_class> slot_allocator::first_filled(size_class from) const {
  if (auto classes = filled_classes_[from.level] & (~uint64_t{0} << from.index))
    return size_class{from.level, static_cast<uint32_t>(std::countr_zero(classes))};
  if (auto levels = filled_levels_ & (~uint32_t{0} << (from.level + 1))) {
    auto level = static_cast<uint32_t>(std::countr_zero(levels));
    return size_class{level, static_cast<uint32_t>(std::countr_zero(filled_classes_[level]))};
  }
  return std::nullopt;
}

uint32_t slot_allocator::checked(uint32_t handle) const {
  if (handle >= record_count_ || is_free(handle))
    CAF_CRITICAL("slot_allocator: a handle that is not allocated");
  return handle;
}

uint32_t slot_allocator::new_record() {
  if (spare_records_ != no_block) {
    auto handle = spare_records_;
    spare_records_ = records_[handle].next_free;
    return handle;
  }
  records_.ensure(record_count_);
  return record_count_++;
}

void slot_allocator::drop_record(uint32_t handle) {
  records_[handle].prev_free = spare_mark;
  records_[handle].next_free = spare_records_;
  spare_records_ = handle;
}

void slot_allocator::link_free(uint32_t handle) {
  auto& r = records_[handle];
  auto c = class_of(r.page_count);
  auto& head = heads_[c.level][c.index];
  r.prev_free = no_block;
  r.next_free = head;
  if (head != no_block)
    records_[head].prev_free = handle;
  head = handle;
  filled_classes_[c.level] |= uint64_t{1} << c.index;
  filled_levels_ |= uint32_t{1} << c.level;
}

void slot_allocator::unlink_free(uint32_t handle) {
  const auto& r = records_[handle];
  auto c = class_of(r.page_count);
  auto& head = heads_[c.level][c.index];
  (r.prev_free == no_block ? head : records_[r.prev_free].next_free) = r.next_free;
  if (r.next_free != no_block)
    records_[r.next_free].prev_free = r.prev_free;
  if (head != no_block)
    return;
  filled_classes_[c.level] &= ~(uint64_t{1} << c.index);
  if (filled_classes_[c.level] == 0)
    filled_levels_ &= ~(uint32_t{1} << c.level);
}

bool slot_allocator::valid() const {
  // Blocks, from the end of the usable range down to its start.
  uint64_t end = usable_pages_;
  uint64_t used_pages = 0;
  uint64_t used_count = 0;
  uint64_t free_count = 0;
  uint64_t block_count = 0;
  auto after = no_block;
  auto is_free_after = false;
  for (auto i = last_; i != no_block; i = records_[i].before) {
    if (i >= record_count_ || ++block_count > record_count_)
      return false;
    const auto& r = records_[i];
    auto free_here = is_free(i);
    if (r.prev_free == spare_mark || r.page_count == 0 || r.after != after
        || uint64_t{r.page} + r.page_count != end || (free_here && is_free_after))
      return false;
    end = r.page;
    after = i;
    is_free_after = free_here;
    free_count += free_here;
    used_count += !free_here;
    used_pages += free_here ? 0 : r.page_count;
  }
  if (end != 0 || used_pages != used_pages_ || used_count != used_count_)
    return false;
  // Lists and bitmaps.
  for (uint32_t level = 0; level < level_count; ++level) {
    if (((filled_levels_ >> level) & 1) != (filled_classes_[level] != 0))
      return false;
    for (uint32_t index = 0; index < classes_per_doubling; ++index) {
      auto head = heads_[level][index];
      if (((filled_classes_[level] >> index) & 1) != (head != no_block))
        return false;
      auto previous = no_block;
      for (auto i = head; i != no_block; i = records_[i].next_free) {
        const auto& r = records_[i];
        auto c = class_of(r.page_count);
        if (r.prev_free != previous || c.level != level || c.index != index
            || free_count-- == 0)
          return false;
        previous = i;
      }
    }
  }
  return free_count == 0;
}

} // namespace kvasir
