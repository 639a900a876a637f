#include "actors/lease_table.hpp"

#include <atomic>

namespace kvasir {

namespace {

bool is_hold(lease_table::kind what) {
  return what == lease_table::kind::read || what == lease_table::kind::hashing;
}

} // namespace

lease_id lease_table::add(const lease& what) {
  auto index = spare_;
  if (index != none) {
    spare_ = records_[index].next;
  } else {
    index = static_cast<uint32_t>(records_.size());
    records_.emplace_back();
  }
  auto& added = records_[index];
  added.what = what;
  ++added.generation;
  added.taken = false;
  added.prev = none;
  auto& first = first_of_.try_emplace(what.owner, none).first->second;
  added.next = first;
  if (first != none)
    records_[first].prev = index;
  first = index;
  ++(is_hold(what.what) ? reads_ : writes_);
  return (lease_id{added.generation} << 32) | index;
}

lease_table::lease lease_table::remove(uint32_t index) {
  auto& gone = records_[index];
  if (gone.next != none)
    records_[gone.next].prev = gone.prev;
  if (gone.prev != none)
    records_[gone.prev].next = gone.next;
  else
    first_of_[gone.what.owner] = gone.next;
  gone.taken = true;
  gone.next = spare_;
  spare_ = index;
  --(is_hold(gone.what.what) ? reads_ : writes_);
  if (gone.what.what == kind::expired)
    --expired_;
  return gone.what;
}

uint32_t lease_table::find(lease_id id) const noexcept {
  auto index = static_cast<uint32_t>(id);
  if (index >= records_.size())
    return none;
  auto& found = records_[index];
  return found.taken || found.generation != static_cast<uint32_t>(id >> 32) ? none : index;
}

std::optional<lease_table::lease> lease_table::take(lease_id id, kind what) {
  auto index = find(id);
  if (index == none || records_[index].what.what != what)
    return std::nullopt;
  return remove(index);
}

std::optional<lease_table::lease> lease_table::take(lease_id id) {
  auto index = find(id);
  if (index == none)
    return std::nullopt;
  return remove(index);
}

std::optional<lease_table::lease> lease_table::expire(lease_id id) {
  auto index = find(id);
  if (index == none || records_[index].what.what != kind::chunk)
    return std::nullopt;
  auto& found = records_[index].what;
  auto before = found;
  found.what = kind::expired;
  found.staged_key = nullptr;
  ++expired_;
  return before;
}

std::vector<object_handle> lease_table::read_objects() const {
  std::vector<object_handle> result;
  result.reserve(reads_);
  for (auto& each : records_)
    if (!each.taken && each.what.what == kind::read)
      result.push_back(each.what.object);
  return result;
}

std::optional<lease_table::lease> lease_table::take_any(owner_id owner) {
  auto i = first_of_.find(owner);
  if (i == first_of_.end())
    return std::nullopt;
  if (i->second == none) {
    first_of_.erase(i);
    return std::nullopt;
  }
  return remove(i->second);
}

owner_id next_owner_id() noexcept {
  static std::atomic<owner_id> last{0};
  return ++last;
}

} // namespace kvasir
