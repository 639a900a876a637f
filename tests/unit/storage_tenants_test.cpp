#include "backends/tenant_table.hpp"
#include "support/chunk_fixture.hpp"

#include <doctest/doctest.h>

#include <map>

/// Whose objects give way: a tenant's own beyond its limit, else those of the largest.

using namespace kvasir;
using namespace kvasir::test;

namespace {

using numbers = std::vector<uint64_t>;

struct tenants_fixture : chunk_fixture {
  explicit tenants_fixture(const char* policy = "lru", uint64_t pages = 16)
    : chunk_fixture(
      setup{.pages = pages,
            .options = {8 * page, 16 * page, 16 * page, 8, pages * page, pages * page},
            .policy = policy}) {}

  std::map<std::string, tenant_quota> quotas() {
    auto result = ask<quota_list>(get_quotas{});
    REQUIRE(result);
    std::map<std::string, tenant_quota> by_name;
    for (auto& each : result->tenants)
      REQUIRE(by_name.emplace(each.tenant, each).second);
    return by_name;
  }
};

} // namespace

TEST_CASE_FIXTURE(tenants_fixture, "a tenant beyond its limit loses its own objects") {
  REQUIRE(store_prompt("b", 0, 4, "other") == 4);
  REQUIRE(ask(set_quota{"mine", 4 * page}));
  for (uint64_t i = 0; i < 6; ++i)
    REQUIRE(store_prompt("a" + std::to_string(i), 0, 1, "mine") == 1);
  CHECK(resident("a0", 1).empty());
  CHECK(resident("a1", 1).empty());
  CHECK(resident("a2", 1) == numbers{0});
  CHECK(resident("b", 4).size() == 4);
  CHECK(quotas()["mine"].used_bytes == 4 * page);
  CHECK(quotas()["mine"].limit_bytes == 4 * page);
  CHECK(quotas()["other"].used_bytes == 4 * page);
  CHECK(quotas()["other"].limit_bytes == 0);
  CHECK(status().evicted_objects == 2);
}

TEST_CASE_FIXTURE(tenants_fixture, "reserved, held and expired memory counts for its tenant") {
  REQUIRE(ask(set_quota{"mine", 4 * page}));
  auto staged = stage(1, "a", 0, 3, "mine");
  REQUIRE(ask(expire_writes{ids_of(staged)}));
  REQUIRE(store_prompt("b", 0, 1, "mine") == 1);
  REQUIRE(acquire_all(2, "b", 0, 1));
  REQUIRE(ask(remove_object{chunk_key("b", 0)}));
  CHECK(quotas()["mine"].used_bytes == 4 * page);
  CHECK(stage(3, "c", 0, 1, "mine")[0].state == chunk_state::no_room);
  CHECK(stage(3, "c", 0, 1, "yours")[0].state == chunk_state::reserved);
  REQUIRE(ask(end_owner{2}));
  CHECK(stage(3, "d", 0, 2, "mine")[1].state == chunk_state::no_room);
  REQUIRE(ask(end_owner{3}));
  REQUIRE(ask(end_owner{1}));
  CHECK(quotas()["mine"].used_bytes == 0);
}

TEST_CASE_FIXTURE(tenants_fixture,
                  "a limit below one chunk lets nothing in and evicts nothing") {
  REQUIRE(store_prompt("a", 0, 2, "mine") == 2);
  REQUIRE(ask(set_quota{"mine", page - 1}));
  CHECK(stage(1, "b", 0, 1, "mine")[0].state == chunk_state::no_room);
  CHECK(resident("a", 2).size() == 2);
}

TEST_CASE_FIXTURE(tenants_fixture, "a lowered limit is reached at the next reservation") {
  REQUIRE(store_prompt("a", 0, 8, "mine") == 8);
  REQUIRE(ask(set_quota{"mine", 3 * page}));
  CHECK(quotas()["mine"].used_bytes == 8 * page);
  REQUIRE(store_prompt("b", 0, 1, "mine") == 1);
  CHECK(quotas()["mine"].used_bytes == 3 * page);
  CHECK(resident("a", 8) == numbers{0, 1});
  REQUIRE(ask(set_quota{"mine", 0}));
  REQUIRE(store_prompt("c", 0, 6, "mine") == 6);
  CHECK(quotas()["mine"].used_bytes == 9 * page);
}

TEST_CASE_FIXTURE(tenants_fixture, "values of lm:// belong to the nameless tenant, who waits") {
  REQUIRE(ask(set_quota{"", 4 * page}));
  REQUIRE(store(1, 3));
  REQUIRE(store_prompt("a", 0, 1) == 1); // An empty salt is the same tenant.
  CHECK(quotas()[""].used_bytes == 4 * page);
  auto open = reserve(1, 2, 4);
  REQUIRE(open);
  CHECK_FALSE(exists(1));
  auto waits = start<write_lease>(reserve_write{2, key(3), {}, page});
  sim.run();
  CHECK(waits.pending());
  REQUIRE(ask(set_quota{"", 5 * page})); // Room for what waits.
  CHECK(waits.get());
}

TEST_CASE("a flood pushes out the flooder's objects and leaves the others alone") {
  for (auto policy : {"lru", "s3fifo"}) {
    tenants_fixture fix{policy};
    REQUIRE(fix.store_prompt("quiet", 0, 4, "quiet") == 4);
    REQUIRE(fix.store_prompt("calm", 0, 3, "calm") == 3);
    for (uint64_t i = 0; i < 100; ++i)
      REQUIRE(fix.store_prompt("loud" + std::to_string(i), 0, 1, "loud") == 1);
    CHECK(fix.resident("quiet", 4).size() == 4);
    CHECK(fix.resident("calm", 3).size() == 3);
    CHECK(fix.quotas()["loud"].used_bytes == 9 * page);
  }
}

TEST_CASE("two tenants that flood end with half of the pool each") {
  for (auto policy : {"lru", "s3fifo"}) {
    tenants_fixture fix{policy};
    for (uint64_t i = 0; i < 16; ++i)
      REQUIRE(fix.store_prompt("first" + std::to_string(i), 0, 1, "a") == 1);
    for (uint64_t i = 0; i < 50; ++i)
      for (auto tenant : {"a", "b"})
        REQUIRE(fix.store_prompt(tenant + std::to_string(i), 0, 1, tenant) == 1);
    auto quotas = fix.quotas();
    CHECK(quotas["a"].used_bytes + quotas["b"].used_bytes == 16 * page);
    CHECK(quotas["a"].used_bytes >= 7 * page);
    CHECK(quotas["b"].used_bytes >= 7 * page);
  }
}

TEST_CASE("if all of the largest is held, the next tenant gives way") {
  tenants_fixture fix;
  REQUIRE(fix.store_prompt("a", 0, 10, "large") == 10);
  REQUIRE(fix.store_prompt("b", 0, 6, "small") == 6);
  REQUIRE(fix.look_up(1, "a", 10).chunks == 10);
  REQUIRE(fix.store_prompt("c", 0, 2, "large") == 2);
  CHECK(fix.resident("b", 6).size() == 4);
  CHECK(fix.resident("a", 10).size() == 10);
}

TEST_CASE("tenants beyond the number that is told apart share what is left") {
  constexpr uint64_t count = tenant_table::max_tenants + 100;
  tenants_fixture fix{"s3fifo", count + 10};
  for (uint64_t i = 0; i < count; ++i) {
    auto name = std::to_string(i);
    REQUIRE(fix.store_prompt(name, 0, 1, name) == 1);
  }
  auto quotas = fix.quotas();
  // All but the nameless one, who has nothing.
  CHECK(quotas.size() == tenant_table::max_tenants - 1);
  CHECK(quotas["(other)"].used_bytes == 102 * page);
  CHECK(failed_with(fix.ask(set_quota{"newcomer", page}), errc::busy));
  CHECK(fix.ask(set_quota{"newcomer", 0}));
  REQUIRE(fix.ask(set_quota{"(other)", 102 * page}));
  REQUIRE(fix.store_prompt("x", 0, 1, "newcomer") == 1);
  CHECK(fix.quotas()["(other)"].used_bytes == 102 * page);
  CHECK(fix.status().evicted_objects == 1);
  // One that has nothing left is forgotten, which makes room for another.
  REQUIRE(fix.ask(remove_object{chunk_key("5", 0)}));
  CHECK(fix.quotas().count("5") == 0);
  REQUIRE(fix.ask(set_quota{"newcomer", page}));
  CHECK(fix.quotas()["newcomer"].limit_bytes == page);
  REQUIRE(fix.ask(set_quota{"newcomer", 0}));
  CHECK(fix.quotas().count("newcomer") == 0);
}

TEST_CASE("policies that share their records keep to their own objects") {
  for (auto name : {"lru", "s3fifo"}) {
    auto first = std::move(*make_eviction_policy(name));
    auto second = first->sibling();
    auto third = second->sibling();
    CHECK(second->name() == name);
    for (uint32_t id = 0; id < 300; ++id)
      (id % 3 == 0 ? first : id % 3 == 1 ? second : third)->insert(id, 4096, id);
    first.reset(); // The records live as long as any of them.
    auto free = [](eviction_policy::object_id) {
      return false;
    };
    for (uint32_t id = 1; id < 300; id += 3)
      CHECK(second->victim(free) == id);
    CHECK_FALSE(second->victim(free));
    second->insert(2000, 4096, 7);
    CHECK(third->queued_count() == 100);
    CHECK(third->victim(free) == 2u);
    // A number that left one may enter another.
    third->insert(1, 4096, 1);
    CHECK(second->victim(free) == 2000u);
  }
}
