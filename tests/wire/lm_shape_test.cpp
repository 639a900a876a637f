#include "messages/lm_shape.hpp"

#include "messages/lm_tables.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <climits>
#include <set>

using namespace kvasir;

namespace {

object_layout layout(int32_t format, int32_t dtype, std::array<int32_t, 4> shape) {
  return {format, dtype, shape};
}

} // namespace

TEST_SUITE("lm shape") {
  TEST_CASE("shapes are padded with zeros, and five dimensions are refused") {
    using shape = std::array<int32_t, 4>;
    const int32_t dims[] = {1, 2, 3, 4, 5};
    CHECK(lm::pad_shape({dims, size_t{0}}) == shape{0, 0, 0, 0});
    CHECK(lm::pad_shape({dims, 2}) == shape{1, 2, 0, 0});
    CHECK(lm::pad_shape({dims, 4}) == shape{1, 2, 3, 4});
    CHECK_FALSE(lm::pad_shape({dims, 5}));
  }

  TEST_CASE("the stripped shapes are those that LMCache decodes") {
    size_t count = 0;
    for (auto file : {"lm/client_frames.json", "lm/server_frames.json"})
      for (const auto& x : golden::vectors(file)) {
        if (!x.contains("decoded"))
          continue;
        CAPTURE(x["name"]);
        const auto dims = x["shape"].get<std::vector<int32_t>>();
        const auto shape = lm::pad_shape(dims);
        REQUIRE(shape);
        object_layout it{*lm::format_from_name(x["fmt"].get<std::string>()), 2, *shape};
        const auto decoded = x["decoded"]["shape"].get<std::vector<int32_t>>();
        REQUIRE(lm::dim_count(it) == decoded.size());
        CHECK(std::equal(decoded.begin(), decoded.end(), shape->begin()));
        ++count;
      }
    CHECK(count > 100);
  }

  TEST_CASE(
    "the size of a layout is the product of its stripped dimensions and the item size") {
    CHECK(lm::byte_size(layout(1, 3, {2, 32, 256, 1024})) == 33554432);
    CHECK(lm::byte_size(layout(1, 4, {7, 3, 0, 0})) == 84);
    CHECK(lm::byte_size(layout(1, 1, {5, 0, 0, 0})) == 10);
    CHECK(lm::byte_size(layout(1, 5, {1, 1, 1, 1})) == 8);
    CHECK(lm::byte_size(layout(1, 6, {0, 0, 0, 0})) == 0);
    CHECK(lm::byte_size(layout(1, 2, {2, 32, 0, 1024})) == 0);
    CHECK(lm::byte_size(layout(1, 2, {INT_MAX, INT_MAX, 1, 1})) == 9223372028264841218ull);
  }

  TEST_CASE("a product beyond 64 bits and a negative dimension have no size") {
    CHECK_FALSE(lm::byte_size(layout(1, 2, {INT_MAX, INT_MAX, INT_MAX, INT_MAX})));
    CHECK_FALSE(lm::byte_size(layout(1, 5, {INT_MAX, INT_MAX, 4, 1})));
    CHECK_FALSE(lm::byte_size(layout(1, 2, {-1, 1, 1, 1})));
    CHECK_FALSE(lm::byte_size(layout(1, 2, {0, 0, 0, INT_MIN})));
    CHECK(lm::byte_size(layout(1, 2, {INT_MAX, INT_MAX, INT_MAX, 0})) == std::nullopt);
    CHECK(lm::byte_size(layout(1, 2, {INT_MAX, INT_MAX, 0, INT_MAX})) == 0);
  }

  TEST_CASE("more bytes than the shape has room for contradict it, fewer do not") {
    const auto it = layout(1, 3, {2, 4, 16, 64});
    CHECK_FALSE(lm::contradicts(it, 0));
    CHECK_FALSE(lm::contradicts(it, 16383));
    CHECK_FALSE(lm::contradicts(it, 16384));
    CHECK(lm::contradicts(it, 16385));
    CHECK(lm::contradicts(it, 16384 + 1024)); // two KV groups, the shape of the first
    CHECK(lm::contradicts(layout(6, 6, {1, 2, 256, 132}), 657408));
    CHECK(lm::contradicts(layout(1, 2, {0, 4, 0, 0}), 1));
    CHECK_FALSE(lm::contradicts(layout(1, 2, {0, 4, 0, 0}), 0));
  }

  TEST_CASE("opaque bytes and an unspecified shape contradict nothing") {
    CHECK_FALSE(lm::contradicts(layout(4, 2, {1, 1, 0, 0}), INT_MAX));
    CHECK_FALSE(lm::contradicts(layout(5, 0, {5, 0, 0, 0}), INT_MAX));
    CHECK_FALSE(lm::contradicts(layout(1, 0, {1, 1, 1, 1}), INT_MAX));
    CHECK_FALSE(lm::contradicts(layout(1, 2, {0, 0, 0, 0}), INT_MAX));
  }

  TEST_CASE("a shape that no tensor has contradicts any length") {
    CHECK(lm::contradicts(layout(1, 2, {-1, -2, 3, 4}), 0));
    CHECK(lm::contradicts(layout(1, 2, {INT_MAX, INT_MAX, INT_MAX, INT_MAX}), 1));
  }

  // Each is a hit of lmcache_server that would make the stock client lose its place.
  TEST_CASE("of the recorded transcripts, exactly those with one byte too many contradict") {
    const std::set<std::string> expected{"put_get_dtype_6", "put_get_dtype_7",
                                         "put_get_dtype_8", "put_get_layer_key",
                                         "put_get_tags",    "truncated_put_FIN"};
    std::set<std::string> found;
    for (const auto& x : golden::vectors("lm/transcripts.json", "transcripts")) {
      const auto bytes = golden::from_hex(x["send_hex"].get<std::string>());
      int32_t in[9];
      if (bytes.size() < lm::client_header_size)
        continue;
      std::memcpy(in, bytes.data(), sizeof(in));
      if (in[0] == 1 && in[1] >= 0
          && lm::contradicts(layout(in[2], in[3], {in[5], in[6], in[7], in[8]}),
                             static_cast<uint64_t>(in[1])))
        found.insert(x["name"].get<std::string>());
    }
    CHECK(found == expected);
  }

  TEST_CASE("the PUTs of LMCache's own raw probes contradict nothing") {
    CHECK_FALSE(lm::contradicts(layout(6, 7, {1, 2, 5, 1}), 10));
    CHECK_FALSE(lm::contradicts(layout(1, 2, {2, 1, 1, 1}), 4));
    CHECK_FALSE(lm::contradicts(layout(1, 1, {2, 1, 1, 4}), 16));
    CHECK_FALSE(lm::contradicts(layout(1, 2, {0, 0, 0, 0}), 65536));
    CHECK_FALSE(lm::contradicts(layout(0, 6, {4194304, 0, 0, 0}), 4194304));
  }
}
