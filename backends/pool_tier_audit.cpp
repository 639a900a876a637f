#include "backends/pool_tier.hpp"

#include <algorithm>

namespace kvasir {

std::vector<uint32_t> pool_tier::count_children() const {
  std::vector<uint32_t> result(table_.size());
  for (uint32_t i = 0; i < table_.size(); ++i)
    if (table_[i].now == object_record::state::complete)
      if (auto parent = parent_of(table_[i]); parent != object_table::none)
        ++result[parent];
  return result;
}

std::string pool_tier::audit() const {
  struct range {
    uint64_t begin;
    uint64_t end;
  };
  std::vector<range> ranges;
  uint64_t used = 0;
  uint64_t held = 0;
  uint64_t visible = 0;
  auto children = count_children();
  std::vector<uint64_t> used_by(tenants_.size());
  for (uint32_t i = 0; i < table_.size(); ++i) {
    auto& record = table_[i];
    using state = object_record::state;
    if (record.now == state::absent)
      continue;
    auto padded = padded_bytes(record);
    ranges.push_back({record.offset_bytes, record.offset_bytes + padded});
    used += padded;
    used_by[record.tenant] += padded;
    held += record.holds > 0 ? padded : 0;
    visible += readable(record) ? 1 : 0;
    if (record.now == state::reserved && record.holds > 0)
      return "a reserved object is held";
    if (record.now == state::complete && table_.find(record.key, record.key_hash) != i)
      return "the index does not lead to a complete object";
    if (record.children != (state::complete == record.now ? children[i] : 0))
      return "an object's children are not as many as it counts";
    if (record.children > 0 && !tenants_.policy(record.tenant).is_parked(i))
      return "an object with children may be chosen by the policy";
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const range& lhs, const range& rhs) { return lhs.begin < rhs.begin; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      return "a slot belongs to two objects";
  if (!ranges.empty() && ranges.back().end > allocator_.usable_bytes())
    return "a slot lies beyond the usable memory";
  if (used != allocator_.used_bytes())
    return "used bytes differ from the sum of the slots";
  for (size_t i = 0; i < used_by.size(); ++i)
    if (used_by[i] != tenants_.used_bytes(static_cast<tenant_table::tenant_id>(i)))
      return "a tenant's bytes differ from the sum of its slots";
  if (held != usage_.held_bytes)
    return "held bytes differ from the sum of the held slots";
  if (visible != usage_.objects)
    return "the object count differs from the readable objects";
  if (!allocator_.valid())
    return "the allocator's books disagree";
  return audit_sharing();
}

} // namespace kvasir
