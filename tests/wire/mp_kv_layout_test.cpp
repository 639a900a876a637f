#include "messages/kv_layout.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace kvasir;

namespace {

mp::kv_layout llama() {
  return {tensor_dtype::float16, false, 32, 256, 1024, 16};
}

} // namespace

TEST_SUITE("mp kv layout") {
  TEST_CASE("every dtype has torch's name and size") {
    struct {
      const char* name;
      size_t size;
    } const known[] = {
      {"float16", 2},       {"bfloat16", 2},
      {"float32", 4},       {"float64", 8},
      {"float8_e4m3fn", 1}, {"float8_e5m2", 1},
      {"uint8", 1},         {"float8_e4m3fnuz", 1},
      {"int8", 1},          {"float8_e5m2fnuz", 1},
      {"int16", 2},         {"int32", 4},
      {"int64", 8},         {"bool", 1},
      {"uint16", 2},        {"uint32", 4},
      {"uint64", 8},
    };
    CHECK(std::size(known) == tensor_dtype_count);
    for (const auto& x : known) {
      CAPTURE(x.name);
      const auto dtype = tensor_dtype_from_name(x.name);
      REQUIRE(dtype);
      CHECK(to_string(*dtype) == x.name);
      CHECK(item_size_bytes(*dtype) == x.size);
    }
    for (const auto* name : {"", "float", "torch.float16", "Float16", "float16 ", "complex64"})
      CHECK_FALSE(tensor_dtype_from_name(name));
  }

  TEST_CASE("a layout has the shape and size that LMCache gives it") {
    auto layout = mp::make_kv_layout(llama());
    REQUIRE(layout);
    CHECK(to_string(layout->shape()) == "[2, 32, 256, 1024]");
    CHECK(layout->chunk_bytes() == 32 * 1024 * 1024);
    auto mla = llama();
    mla.single_plane = true;
    mla.dtype = tensor_dtype::float8_e4m3fn;
    layout = mp::make_kv_layout(mla);
    REQUIRE(layout);
    CHECK(to_string(layout->shape()) == "[32, 256, 1024]");
    CHECK(layout->chunk_bytes() == 8 * 1024 * 1024);
  }

  TEST_CASE("a count of 0 is refused and named") {
    uint32_t mp::kv_layout::*const counts[]
      = {&mp::kv_layout::layers, &mp::kv_layout::slots, &mp::kv_layout::hidden,
         &mp::kv_layout::block_size};
    const char* const names[]
      = {"num_layers", "num_physical_slots", "hidden_dim_size", "block_size"};
    for (size_t i = 0; i < std::size(counts); ++i) {
      auto wrong = llama();
      wrong.*counts[i] = 0;
      const auto layout = mp::make_kv_layout(wrong);
      REQUIRE_FALSE(layout);
      CHECK(layout.error() == errc::invalid_argument);
      CHECK(to_string(layout.error()).find(names[i]) != std::string::npos);
    }
  }

  TEST_CASE("a chunk above 2^40 bytes is refused, also where the product overflows") {
    const uint32_t most = UINT32_MAX;
    // 2^40 exactly: 2 * 2^13 * 2^13 * 2^12 * 1
    mp::kv_layout layout{tensor_dtype::uint8, false, 1 << 13, 1 << 13, 1 << 13, 1};
    REQUIRE(mp::make_kv_layout(layout));
    CHECK(mp::make_kv_layout(layout)->chunk_bytes() == mp::max_chunk_bytes);
    ++layout.hidden;
    CHECK(mp::make_kv_layout(layout).error() == errc::too_large);
    layout = {tensor_dtype::int16, false, 1 << 13, 1 << 13, 1 << 13, 1};
    CHECK(mp::make_kv_layout(layout).error() == errc::too_large);
    CHECK(mp::make_kv_layout({tensor_dtype::uint8, true, most, most, most, 1}).error()
          == errc::too_large);
    // A product of 2^64 would be 0 if it wrapped.
    CHECK(mp::make_kv_layout({tensor_dtype::uint8, false, 1u << 31, 1u << 31, 2, 1}).error()
          == errc::too_large);
    CHECK(mp::make_kv_layout({tensor_dtype::float64, false, 1u << 30, 1u << 30, 1, 1}).error()
          == errc::too_large);
  }

  TEST_CASE("the digest tells dtype and shape apart and nothing else") {
    std::set<uint64_t> digests;
    for (size_t i = 0; i < tensor_dtype_count; ++i) {
      auto layout = llama();
      layout.dtype = static_cast<tensor_dtype>(i);
      digests.insert(layout.digest());
    }
    for (const auto& x : {mp::kv_layout{tensor_dtype::float16, true, 32, 256, 1024, 16},
                          {tensor_dtype::float16, false, 256, 32, 1024, 16},
                          {tensor_dtype::float16, false, 32, 25, 61024, 16},
                          {tensor_dtype::float16, true, 2, 32, 256, 16}})
      digests.insert(x.digest());
    CHECK(digests.size() == tensor_dtype_count + 4);
    auto other = llama();
    other.block_size = 32;
    CHECK(other.digest() == llama().digest());
    CHECK(other != llama());
    // Stored with objects: must never change.
    CHECK(llama().digest() == 0xe13dd4b835b6ed16);
  }
}
