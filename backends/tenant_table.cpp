#include "backends/tenant_table.hpp"

#include <utility>

namespace kvasir {

tenant_table::tenant_table(std::unique_ptr<eviction_policy> policy) {
  tenants_.push_back({{}, 0, 0, std::move(policy)});
  ids_.emplace(std::string{}, nameless);
  add(other_name);
}

tenant_table::tenant_id tenant_table::add(std::string_view name) {
  tenant_id id;
  if (spare_.empty()) {
    id = static_cast<tenant_id>(tenants_.size());
    tenants_.emplace_back();
  } else {
    id = spare_.back();
    spare_.pop_back();
  }
  tenants_[id] = {std::string{name}, 0, 0, tenants_[nameless].policy->sibling()};
  ids_.emplace(name, id);
  return id;
}

tenant_table::tenant_id tenant_table::find(std::string_view name) const {
  if (name.empty())
    return nameless;
  auto found = ids_.find(std::string{name});
  return found == ids_.end() ? other : found->second;
}

tenant_table::tenant_id tenant_table::open(std::string_view name) {
  auto id = find(name);
  return id == other && name != other_name && !full() ? add(name) : id;
}

std::optional<tenant_table::tenant_id> tenant_table::limited(std::string_view name) const {
  auto id = find(name);
  auto would_be_new = id == other && name != other_name && !full();
  if (would_be_new || tenants_[id].limit_bytes == 0)
    return std::nullopt;
  return id;
}

void tenant_table::remove_bytes(tenant_id id, uint64_t size_bytes) {
  tenants_[id].used_bytes -= size_bytes;
  forget_if_idle(id);
}

void tenant_table::forget_if_idle(tenant_id id) {
  auto& idle = tenants_[id];
  if (id == nameless || id == other || idle.used_bytes > 0 || idle.limit_bytes > 0)
    return;
  ids_.erase(idle.name);
  idle = {};
  spare_.push_back(id);
}

bool tenant_table::set_limit(std::string_view name, uint64_t limit_bytes) {
  auto id = find(name);
  if (id == other && name != other_name) {
    if (limit_bytes == 0)
      return true;
    if (full())
      return false;
    id = add(name);
  }
  tenants_[id].limit_bytes = limit_bytes;
  forget_if_idle(id);
  return true;
}

eviction_policy* tenant_table::largest() {
  const entry* result = nullptr;
  for (auto& each : tenants_)
    if (each.used_bytes > (result == nullptr ? 0 : result->used_bytes)
        && each.policy->queued_count() > 0)
      result = &each;
  return result == nullptr ? nullptr : result->policy.get();
}

std::vector<tenant_quota> tenant_table::list() const {
  std::vector<tenant_quota> result;
  for (auto& each : tenants_)
    if (each.used_bytes > 0 || each.limit_bytes > 0)
      result.push_back({each.name, each.limit_bytes, each.used_bytes});
  return result;
}

} // namespace kvasir
