#include "backends/object_table.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>

using kvasir::object_table;

namespace {

/// Takes a record and puts it into the index.
uint32_t add(object_table& table, const std::string& key, uint64_t hash) {
  auto index = table.take();
  table[index].key = key;
  table[index].key_hash = hash;
  table.insert(index);
  return index;
}

} // namespace

TEST_CASE("a record is found by its key until it is erased") {
  object_table table;
  CHECK(table.find("a", 1) == object_table::none);
  auto index = add(table, "a", 1);
  CHECK(table.find("a", 1) == index);
  CHECK(table.find("a", 2) == object_table::none);
  CHECK(table.find("b", 1) == object_table::none);
  table.erase(index);
  CHECK(table.find("a", 1) == object_table::none);
}

TEST_CASE("keys whose hashes collide are told apart") {
  object_table table;
  std::vector<uint32_t> indices;
  for (auto i = 0; i < 100; ++i)
    indices.push_back(add(table, "key" + std::to_string(i), 7));
  for (auto i = 0; i < 100; i += 2)
    table.erase(indices[static_cast<size_t>(i)]);
  for (auto i = 0; i < 100; ++i)
    CHECK(table.find("key" + std::to_string(i), 7)
          == (i % 2 == 0 ? object_table::none : indices[static_cast<size_t>(i)]));
}

TEST_CASE("a record that is given back is reused with another generation, and empty") {
  object_table table;
  auto index = add(table, "a", 1);
  auto generation = table[index].generation;
  table[index].holds = 3;
  table.erase(index);
  table.give_back(index);
  CHECK(table[index].now == kvasir::object_record::state::absent);
  CHECK(table.take() == index);
  CHECK(table[index].generation != generation);
  CHECK(table[index].holds == 0);
  CHECK(table[index].key.empty());
  CHECK(table.size() == 1);
}

TEST_CASE("a record's address never changes while the table grows") {
  object_table table;
  auto first = &table[add(table, "first", 0)];
  for (uint64_t i = 1; i < 50'000; ++i)
    add(table, std::to_string(i), i * 0x9e3779b97f4a7c15);
  CHECK(&table[0] == first);
  CHECK(table[0].key == "first");
}

TEST_CASE("the index agrees with a plain map through growth and decline") {
  std::mt19937_64 random{3};
  object_table table;
  std::map<std::string, uint32_t> model;
  auto hash_of = [](uint64_t number) {
    return number * 0x9e3779b97f4a7c15 >> 7;
  };
  for (auto i = 0; i < 200'000; ++i) {
    auto number = random() % 30'000;
    auto key = std::to_string(number);
    auto found = model.find(key);
    REQUIRE(table.find(key, hash_of(number))
            == (found == model.end() ? object_table::none : found->second));
    auto growing = i < 120'000;
    if (found == model.end() && random() % 4 < (growing ? 3 : 1)) {
      model[key] = add(table, key, hash_of(number));
    } else if (found != model.end() && random() % 4 < (growing ? 1 : 3)) {
      table.erase(found->second);
      table.give_back(found->second);
      model.erase(found);
    }
  }
  for (auto& [key, index] : model)
    REQUIRE(table.find(key, hash_of(std::stoull(key))) == index);
}
