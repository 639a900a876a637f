#include "messages/lm_remote_metadata.hpp"

#include "fuzz/lm_properties.hpp"
#include "messages/lm_shape.hpp"
#include "messages/lm_tables.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <climits>
#include <random>

using namespace kvasir;

namespace {

lm::remote_metadata two_groups() {
  return {657408, 6, {{6, {1, 2, 256, 132}}, {3, {1, 2, 256, 576}}}};
}

} // namespace

TEST_SUITE("lm remote metadata") {
  TEST_CASE("metadata of one to four groups is written and read as LMCache does") {
    size_t count = 0;
    for (const auto& x : golden::vectors("lm/remote_metadata.json")) {
      CAPTURE(x["name"]);
      const auto groups = x["groups"].get<size_t>();
      CAPTURE(groups);
      if (x.contains("error")) {
        const lm::remote_metadata given{
          0, 1, std::vector<lm::metadata_group>(x["given"].get<size_t>())};
        const auto written = lm::encode_remote_metadata(given, groups);
        REQUIRE_FALSE(written);
        CHECK(written.error() == errc::invalid_argument);
        continue;
      }
      const auto bytes = golden::from_hex(x["hex"].get<std::string>());
      CHECK(bytes.size() == lm::remote_metadata_size(groups));
      CHECK(bytes.size() == x["bytes"]);
      lm::remote_metadata expected{x["decoded"]["length"], x["decoded"]["fmt"], {}};
      CHECK(lm::format_name(expected.format) == x["fmt"].get<std::string>());
      for (size_t i = 0; i < groups; ++i) {
        const auto shape = lm::pad_shape(x["shapes"][i].get<std::vector<int32_t>>());
        const auto dtype = lm::dtype_from_name(x["dtypes"][i].get<std::string>());
        REQUIRE(shape);
        REQUIRE(dtype);
        expected.groups.push_back({*dtype, *shape});
        const auto stripped = x["decoded"]["shapes"][i].get<std::vector<int32_t>>();
        CHECK(lm::dim_count({expected.format, *dtype, *shape}) == stripped.size());
      }
      const auto read = lm::parse_remote_metadata(bytes, groups);
      REQUIRE(read);
      CHECK(*read == expected);
      const auto written = lm::encode_remote_metadata(expected, groups);
      REQUIRE(written);
      CHECK(*written == bytes);
      ++count;
    }
    CHECK(count == 20);
  }

  TEST_CASE("two KV groups of different dtype and shape take 48 bytes") {
    const int32_t ints[] = {657408, 6, 6, 1, 2, 256, 132, 3, 1, 2, 256, 576};
    const auto bytes = std::as_bytes(std::span{ints});
    const auto written = lm::encode_remote_metadata(two_groups(), 2);
    REQUIRE(written);
    CHECK(std::equal(bytes.begin(), bytes.end(), written->begin(), written->end()));
    CHECK(lm::parse_remote_metadata(bytes, 2) == two_groups());
    uint64_t sum = 0;
    for (const auto& group : two_groups().groups)
      sum += *lm::byte_size({6, group.dtype, group.shape});
    CHECK(sum == 657408);
  }

  TEST_CASE("another size than the number of groups asks for is an error") {
    const auto bytes = *lm::encode_remote_metadata(two_groups(), 2);
    const std::span<const std::byte> all{bytes};
    for (size_t size = 0; size < bytes.size(); ++size)
      CHECK_FALSE(lm::parse_remote_metadata(all.first(size), 2));
    CHECK_FALSE(lm::parse_remote_metadata(all, 1));
    CHECK_FALSE(lm::parse_remote_metadata(all, 3));
    CHECK(lm::parse_remote_metadata(all, 0).error() == errc::invalid_argument);
    CHECK(lm::parse_remote_metadata(all, 65).error() == errc::invalid_argument);
    CHECK(lm::parse_remote_metadata(all, SIZE_MAX).error() == errc::invalid_argument);
    CHECK(lm::parse_remote_metadata(all.first(47), 2).error() == errc::malformed_frame);
  }

  TEST_CASE("each field is refused outside its range, in both directions") {
    struct {
      size_t field;
      int32_t value;
      bool good;
    } const cases[]
      = {{0, INT_MIN, false}, {0, -1, false}, {0, 0, true},       {0, INT_MAX, true},
         {1, -1, false},      {1, 0, true},   {1, 8, true},       {1, 9, false},
         {2, -1, false},      {2, 8, true},   {2, 9, false},      {3, INT_MIN, true},
         {7, -1, false},      {7, 9, false},  {11, INT_MAX, true}};
    for (const auto& x : cases) {
      CAPTURE(x.field);
      CAPTURE(x.value);
      auto bytes = *lm::encode_remote_metadata(two_groups(), 2);
      std::memcpy(bytes.data() + x.field * 4, &x.value, 4);
      const auto read = lm::parse_remote_metadata(bytes, 2);
      CHECK(static_cast<bool>(read) == x.good);
      if (!read)
        CHECK(read.error() == errc::malformed_frame);
    }
    auto metadata = two_groups();
    metadata.length = -1;
    CHECK_FALSE(lm::encode_remote_metadata(metadata, 2));
    metadata = two_groups();
    metadata.format = 9;
    CHECK_FALSE(lm::encode_remote_metadata(metadata, 2));
    metadata = two_groups();
    metadata.groups[1].dtype = 9;
    CHECK_FALSE(lm::encode_remote_metadata(metadata, 2));
    metadata.groups.clear();
    CHECK_FALSE(lm::encode_remote_metadata(metadata, 0));
    metadata.groups.resize(65);
    CHECK_FALSE(lm::encode_remote_metadata(metadata, 65));
  }

  TEST_CASE("dtype 1 reads as 2 and is never written") {
    auto metadata = two_groups();
    metadata.groups[0].dtype = 1;
    const auto bytes = *lm::encode_remote_metadata(metadata, 2);
    CHECK(lm::parse_remote_metadata(bytes, 2)->groups[0].dtype == 2);
    auto aliased = bytes;
    aliased[8] = std::byte{1};
    CHECK(lm::parse_remote_metadata(aliased, 2)->groups[0].dtype == 2);
    CHECK(lm::properties::check_remote_metadata(aliased) == nullptr);
  }

  TEST_CASE("random bytes never break a property of metadata") {
    std::mt19937 random{5};
    for (int i = 0; i < 20000; ++i) {
      std::vector<int32_t> ints(2 + 5 * (random() % 5) + (i % 7 == 0));
      for (auto& x : ints)
        x = i % 2 ? static_cast<int32_t>(random()) : static_cast<int32_t>(random() % 10);
      REQUIRE(lm::properties::check_remote_metadata(std::as_bytes(std::span{ints})) == nullptr);
    }
  }
}
