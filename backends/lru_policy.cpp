#include "backends/lru_policy.hpp"

namespace kvasir {

lru_policy::entry* lru_policy::find(object_id id) {
  if (id >= entries_.capacity() || entries_[id].where == place::absent)
    return nullptr;
  return &entries_[id];
}

void lru_policy::insert(object_id id, uint64_t size_bytes, uint64_t) {
  remove(id);
  entries_.ensure(id);
  entries_[id].size_bytes = size_bytes;
  entries_[id].where = place::queued;
  queue_.push_newest(id);
}

void lru_policy::touch(object_id id) {
  if (auto* e = find(id); e != nullptr && e->where == place::queued) {
    queue_.unlink(id);
    queue_.push_newest(id);
  }
}

void lru_policy::remove(object_id id) {
  auto* e = find(id);
  if (e == nullptr)
    return;
  if (e->where == place::queued)
    queue_.unlink(id);
  else
    --parked_count_;
  e->where = place::absent;
}

std::optional<lru_policy::object_id> lru_policy::victim(const held_predicate& is_held) {
  while (!queue_.empty()) {
    auto id = queue_.oldest();
    if (is_held(id)) {
      park(id);
      continue;
    }
    remove(id);
    return id;
  }
  return std::nullopt;
}

void lru_policy::park(object_id id) {
  if (auto* e = find(id); e != nullptr && e->where == place::queued) {
    queue_.unlink(id);
    e->where = place::parked;
    ++parked_count_;
  }
}

void lru_policy::release(object_id id, reentry where) {
  if (!is_parked(id))
    return;
  entries_[id].where = place::queued;
  --parked_count_;
  if (where == reentry::recent)
    queue_.push_newest(id);
  else
    queue_.push_oldest(id);
}

std::unique_ptr<eviction_policy> lru_policy::sibling() const {
  return std::unique_ptr<eviction_policy>{new lru_policy{shared_}};
}

bool lru_policy::is_parked(object_id id) const {
  return id < entries_.capacity() && entries_[id].where == place::parked;
}

} // namespace kvasir
