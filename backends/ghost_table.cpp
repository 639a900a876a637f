#include "backends/ghost_table.hpp"

#include <algorithm>
#include <bit>

namespace kvasir {

namespace {

constexpr uint64_t min_window = 64;

uint32_t tag_of(uint64_t hash) {
  auto tag = static_cast<uint32_t>(hash >> 32);
  return tag == 0 ? 1 : tag;
}

} // namespace

ghost_table::entry* ghost_table::bucket_of(table& t, uint64_t hash) {
  auto bucket_count = t.entry_count / bucket_size;
  return &t.entries[(hash & (bucket_count - 1)) * bucket_size];
}

void ghost_table::grow_to(uint32_t entry_count) {
  auto* memory = static_cast<entry*>(std::calloc(entry_count, sizeof(entry)));
  if (memory == nullptr)
    return; // advice only: go on with the smaller table
  previous_ = std::move(current_);
  previous_until_ = time_ + window_;
  current_.entries.reset(memory);
  current_.entry_count = entry_count;
}

void ghost_table::add(uint64_t hash, uint64_t resident_count) {
  window_ = static_cast<uint32_t>(std::clamp<uint64_t>(resident_count, min_window, max_window));
  if (current_.entry_count < window_)
    grow_to(std::bit_ceil(window_));
  if (current_.entry_count == 0)
    return;
  if (previous_.entry_count != 0 && static_cast<int32_t>(time_ - previous_until_) >= 0)
    previous_ = table{};
  ++time_;
  auto* bucket = bucket_of(current_, hash);
  auto* place = bucket;
  for (auto* e = bucket; e != bucket + bucket_size; ++e) {
    if (e->tag == 0 || e->tag == tag_of(hash)) {
      place = e;
      break;
    }
    if (time_ - e->time > time_ - place->time)
      place = e;
  }
  *place = {tag_of(hash), time_};
}

bool ghost_table::take(uint64_t hash) {
  return take(current_, hash) || take(previous_, hash);
}

bool ghost_table::take(table& t, uint64_t hash) {
  if (t.entry_count == 0)
    return false;
  auto* bucket = bucket_of(t, hash);
  for (auto* e = bucket; e != bucket + bucket_size; ++e) {
    if (e->tag == tag_of(hash)) {
      auto fresh = !expired(*e);
      *e = {};
      return fresh;
    }
  }
  return false;
}

uint64_t ghost_table::memory_bytes() const {
  return (uint64_t{current_.entry_count} + previous_.entry_count) * sizeof(entry);
}

} // namespace kvasir
