#include "messages/lm_tables.hpp"

#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <climits>

using namespace kvasir;

TEST_SUITE("lm tables") {
  TEST_CASE("the tables are LMCache's own") {
    const auto tables = golden::load("lm/tables.json");
    CHECK(tables["client_header_bytes"] == lm::client_header_size);
    CHECK(tables["server_header_bytes"] == lm::server_header_size);
    CHECK(tables["struct_calcsize"]["client"] == lm::client_header_size);
    CHECK(tables["struct_calcsize"]["server"] == lm::server_header_size);
    CHECK(tables["max_key_length"] == lm::max_key_size);
    CHECK(tables["commands"].size() == 5);
    for (const auto& [name, value] : tables["commands"].items()) {
      auto op = lm::to_command(value.get<int32_t>());
      REQUIRE(op);
      CHECK(lm::to_string(*op) == name);
    }
    CHECK(lm::to_return_code(tables["return_codes"]["SUCCESS"]) == lm::return_code::success);
    CHECK(lm::to_return_code(tables["return_codes"]["FAIL"]) == lm::return_code::fail);
    CHECK(tables["memory_format"].size() == 9);
    for (const auto& [name, value] : tables["memory_format"].items()) {
      CHECK(lm::format_from_name(name) == value.get<int32_t>());
      CHECK(lm::format_name(value) == name);
      CHECK(lm::is_memory_format(value));
      CHECK(lm::token_dim(value) == tables["memory_format_token_dim"][name]);
    }
    for (const auto& [name, value] : tables["dtype_to_int"].items())
      CHECK(lm::dtype_from_name(name) == value.get<int32_t>());
    CHECK(tables["int_to_dtype"].size() == 9);
    for (const auto& [code, name] : tables["int_to_dtype"].items())
      CHECK(lm::dtype_name(std::stoi(code)) == name.get<std::string>());
    for (const auto& [name, value] : tables["location_to_int"].items())
      CHECK(lm::location_from_name(name) == value.get<int32_t>());
    for (const auto& [code, name] : tables["int_to_location"].items())
      CHECK(lm::location_name(std::stoi(code)) == (name.is_null() ? "None" : name));
    CHECK(tables["key_dtype_parse"].size() == lm::key_dtypes.size());
    for (const auto& x : lm::key_dtypes) {
      CHECK(lm::is_key_dtype(x.name));
      CHECK(tables["key_dtype_parse"][std::string{x.name}] == x.torch_name);
      CHECK(tables["key_dtype_names"][std::string{x.torch_name}] == x.name);
    }
  }

  TEST_CASE("a torch alias means the type it stands for, and 1 is normalised to 2") {
    CHECK(lm::dtype_from_name("half") == 2);
    CHECK(lm::dtype_from_name("float") == 4);
    CHECK(lm::dtype_from_name("double") == 5);
    CHECK(lm::normalise_dtype(1) == 2);
    for (int32_t code : {0, 2, 3, 4, 5, 6, 7, 8})
      CHECK(lm::normalise_dtype(code) == code);
  }

  TEST_CASE("a number outside a table is nothing, never a wrong entry") {
    for (int32_t value : {INT_MIN, -1, 9, 100, INT_MAX}) {
      CAPTURE(value);
      CHECK_FALSE(lm::to_command(value));
      CHECK_FALSE(lm::to_return_code(value));
      CHECK_FALSE(lm::is_memory_format(value));
      CHECK_FALSE(lm::is_location(value));
      CHECK_FALSE(lm::normalise_dtype(value));
      CHECK(lm::item_size(value) == 0);
      CHECK(lm::format_name(value).empty());
      CHECK(lm::dtype_name(value).empty());
      CHECK(lm::location_name(value).empty());
      CHECK(lm::token_dim(value) == 0);
    }
    CHECK_FALSE(lm::to_command(0));
    CHECK_FALSE(lm::to_command(6));
    CHECK_FALSE(lm::is_location(3));
    CHECK(lm::to_string(static_cast<lm::command>(6)) == "unknown");
  }

  TEST_CASE("a type the wire cannot carry has no code") {
    for (auto name : {"int8", "int16", "int32", "int64", "bool", "uint16", "complex64",
                      "float8_e4m3fnuz", "float8_e5m2fnuz", "", "Float16"})
      CHECK_FALSE(lm::dtype_from_name(name));
    CHECK_FALSE(lm::format_from_name("KV_2ltd"));
    CHECK_FALSE(lm::location_from_name("RemoteBackend"));
  }

  TEST_CASE("a key's element type is one of 14 names, case included") {
    for (auto name : {"", "float16", "HALF", "half ", "hal", "fp8_e4m3", "bfloat1"})
      CHECK_FALSE(lm::is_key_dtype(name));
  }
}
