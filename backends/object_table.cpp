#include "backends/object_table.hpp"

namespace kvasir {

object_table::object_table() {
  buckets_.ensure(initial_buckets - 1);
  for (uint32_t i = 0; i < initial_buckets; ++i)
    buckets_[i] = none;
}

uint32_t object_table::take() {
  auto index = spare_;
  if (index != none) {
    spare_ = records_[index].next;
  } else {
    index = size_++;
    records_.ensure(index);
  }
  auto& record = records_[index];
  ++record.generation;
  record.next = none;
  return index;
}

void object_table::give_back(uint32_t index) {
  auto& record = records_[index];
  record.key = std::string{}; // Frees the characters, which `clear` would keep.
  record.now = object_record::state::absent;
  record.holds = 0;
  record.parent_generation = 0;
  record.entry = object_record::unlisted;
  record.next = spare_;
  spare_ = index;
}

uint32_t object_table::bucket_of(uint64_t key_hash) const noexcept {
  auto bucket = static_cast<uint32_t>(key_hash & (level_size_ - 1));
  if (bucket < bucket_count_ - level_size_)
    bucket = static_cast<uint32_t>(key_hash & (2 * uint64_t{level_size_} - 1));
  return bucket;
}

uint32_t object_table::find(const std::string& key, uint64_t key_hash) const {
  for (auto i = buckets_[bucket_of(key_hash)]; i != none; i = records_[i].next)
    if (records_[i].key_hash == key_hash && records_[i].key == key)
      return i;
  return none;
}

uint32_t object_table::find(uint64_t key_hash) const {
  for (auto i = buckets_[bucket_of(key_hash)]; i != none; i = records_[i].next)
    if (records_[i].key_hash == key_hash)
      return i;
  return none;
}

void object_table::insert(uint32_t index) {
  auto& head = buckets_[bucket_of(records_[index].key_hash)];
  records_[index].next = head;
  head = index;
  if (++indexed_ > bucket_count_)
    split_one();
}

void object_table::erase(uint32_t index) {
  auto link = &buckets_[bucket_of(records_[index].key_hash)];
  while (*link != index)
    link = &records_[*link].next;
  *link = records_[index].next;
  records_[index].next = none;
  --indexed_;
}

void object_table::split_one() {
  auto from = bucket_count_ - level_size_;
  buckets_.ensure(bucket_count_);
  buckets_[bucket_count_++] = none;
  auto chain = buckets_[from];
  buckets_[from] = none;
  while (chain != none) {
    auto& record = records_[chain];
    auto next = record.next;
    auto& head = buckets_[bucket_of(record.key_hash)];
    record.next = head;
    head = chain;
    chain = next;
  }
  if (bucket_count_ == 2 * level_size_)
    level_size_ = bucket_count_;
}

} // namespace kvasir
