#include "backends/s3fifo_policy.hpp"

namespace kvasir {

namespace {

constexpr uint64_t max_frequency = 3; // two bits

} // namespace

s3fifo_policy::entry* s3fifo_policy::find(object_id id) {
  if (id >= entries_.capacity() || place_of(entries_[id]) == place::absent)
    return nullptr;
  return &entries_[id];
}

void s3fifo_policy::insert(object_id id, uint64_t size_bytes, uint64_t key_hash) {
  remove(id);
  entries_.ensure(id);
  auto& e = entries_[id];
  e.key_hash = key_hash;
  e.size_bytes = size_bytes & ((uint64_t{1} << 56) - 1);
  e.frequency = 0;
  if (ghost_.take(key_hash)) {
    set_place(e, place::main);
    main_.push_newest(id);
  } else {
    set_place(e, place::small);
    small_.push_newest(id);
  }
}

void s3fifo_policy::touch(object_id id) {
  if (auto* e = find(id); e != nullptr && e->frequency < max_frequency)
    e->frequency = (e->frequency + 1) & max_frequency;
}

void s3fifo_policy::remove(object_id id) {
  auto* e = find(id);
  if (e == nullptr)
    return;
  switch (place_of(*e)) {
    case place::absent:
      break;
    case place::small:
      small_.unlink(id);
      break;
    case place::main:
      main_.unlink(id);
      break;
    case place::parked_small:
    case place::parked_main:
      --parked_count_;
      break;
  }
  set_place(*e, place::absent);
}

std::optional<s3fifo_policy::object_id> s3fifo_policy::victim(const held_predicate& is_held) {
  // Ends: each round parks an object (it left the queues), spends a second chance, or returns.
  auto chances = second_chances_per_call;
  while (queued_count() != 0) {
    auto total_bytes = small_.size_bytes() + main_.size_bytes();
    auto from_small
      = main_.empty() || (!small_.empty() && small_.size_bytes() >= total_bytes / 10);
    auto id = from_small ? small_.oldest() : main_.oldest();
    auto& e = entries_[id];
    if (chances > 0 && e.frequency > (from_small ? 1u : 0u)) {
      --chances;
      (from_small ? small_ : main_).unlink(id);
      e.frequency = from_small ? 0 : (e.frequency - 1) & max_frequency;
      set_place(e, place::main);
      main_.push_newest(id);
      continue;
    }
    if (is_held(id)) {
      park(id);
      continue;
    }
    remove(id);
    if (from_small)
      ghost_.add(e.key_hash, queued_count());
    return id;
  }
  return std::nullopt;
}

void s3fifo_policy::park(object_id id) {
  auto* e = find(id);
  if (e == nullptr || is_parked(id))
    return;
  auto in_small = place_of(*e) == place::small;
  (in_small ? small_ : main_).unlink(id);
  set_place(*e, in_small ? place::parked_small : place::parked_main);
  ++parked_count_;
}

void s3fifo_policy::release(object_id id, reentry where) {
  if (!is_parked(id))
    return;
  auto& e = entries_[id];
  auto to_small = place_of(e) == place::parked_small;
  set_place(e, to_small ? place::small : place::main);
  --parked_count_;
  auto& q = to_small ? small_ : main_;
  if (where == reentry::recent)
    q.push_newest(id);
  else
    q.push_oldest(id);
}

std::unique_ptr<eviction_policy> s3fifo_policy::sibling() const {
  return std::unique_ptr<eviction_policy>{new s3fifo_policy{shared_}};
}

bool s3fifo_policy::is_parked(object_id id) const {
  if (id >= entries_.capacity())
    return false;
  auto p = place_of(entries_[id]);
  return p == place::parked_small || p == place::parked_main;
}

} // namespace kvasir
