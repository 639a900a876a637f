// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/eviction_policy.hpp"
#include "messages/chunk_messages.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// Whose objects take the memory: each tenant has its bytes, its limit and an eviction policy
/// of its own, so that one who floods the pool pushes out what is his.
///
/// Tenants are named by clients: there are at most `max_tenants`, all further ones share the
/// entry "(other)". One that has neither bytes nor a limit is forgotten. The nameless tenant
/// (lm://) and "(other)" are always there.
///
/// Threading: not thread-safe. Cost: O(1) per call, but for `largest`, which looks at each
/// tenant, and `list`.
class tenant_table {
public:
  using tenant_id = uint16_t;

  static constexpr size_t max_tenants = 1024;
  static constexpr std::string_view other_name = "(other)";

  /// @param policy that of the nameless tenant; all others get siblings of it.
  explicit tenant_table(std::unique_ptr<eviction_policy> policy);

  /// The tenant of that name, a new one if need be. It must get bytes or a limit at once.
  tenant_id open(std::string_view name);

  /// The tenant that a claim under that name would count for, if it has a limit.
  std::optional<tenant_id> limited(std::string_view name) const;

  void add_bytes(tenant_id id, uint64_t size_bytes) { tenants_[id].used_bytes += size_bytes; }
  void remove_bytes(tenant_id id, uint64_t size_bytes);

  /// @returns false if the name is new and there are too many tenants already.
  bool set_limit(std::string_view name, uint64_t limit_bytes);

  eviction_policy& policy(tenant_id id) { return *tenants_[id].policy; }
  const eviction_policy& policy(tenant_id id) const { return *tenants_[id].policy; }

  /// The policy of whoever takes the most bytes and has something that may be evicted;
  /// nullptr if nobody has.
  eviction_policy* largest();

  /// Those with bytes or a limit.
  std::vector<tenant_quota> list() const;

  uint64_t limit_bytes(tenant_id id) const { return tenants_[id].limit_bytes; }
  uint64_t used_bytes(tenant_id id) const { return tenants_[id].used_bytes; }
  size_t size() const { return tenants_.size(); } ///< All ids are below this.

private:
  struct entry {
    std::string name;
    uint64_t used_bytes = 0;
    uint64_t limit_bytes = 0; ///< 0: none.
    std::unique_ptr<eviction_policy> policy;
  };

  static constexpr tenant_id nameless = 0;
  static constexpr tenant_id other = 1;

  /// @returns an id also for a name that is not there: that of "(other)".
  tenant_id find(std::string_view name) const;
  tenant_id add(std::string_view name);
  bool full() const { return ids_.size() >= max_tenants; }
  void forget_if_idle(tenant_id id);

  std::vector<entry> tenants_;
  std::vector<tenant_id> spare_;
  std::unordered_map<std::string, tenant_id> ids_;
};

} // namespace kvasir
