#include "fuzz/mp_properties.hpp"
#include "messages/kv_layout.hpp"
#include "messages/tensor_pickle.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

using namespace kvasir;

namespace {

using bytes = std::vector<std::byte>;

tensor_shape shape_of(const nlohmann::json& dims) {
  return tensor_shape{dims.get<std::vector<uint64_t>>()};
}

bytes raw_of(std::span<const std::byte> pickle, const mp::tensor_view& view) {
  const auto raw = pickle.subspan(view.offset_bytes, view.size_bytes);
  return {raw.begin(), raw.end()};
}

/// What a sender gathers.
bytes gather(const mp::tensor_list_writer& writer, const std::vector<bytes>& tensors) {
  bytes result;
  for (size_t i = 0; i <= writer.tensor_count(); ++i) {
    const auto piece = writer.piece(i);
    result.insert(result.end(), piece.begin(), piece.end());
    if (i < tensors.size())
      result.insert(result.end(), tensors[i].begin(), tensors[i].end());
  }
  return result;
}

bytes write(tensor_dtype dtype, const tensor_shape& shape, const std::vector<bytes>& tensors) {
  const auto writer = mp::tensor_list_writer::make(dtype, shape, tensors.size());
  REQUIRE(writer);
  auto result = gather(*writer, tensors);
  CHECK(result.size() == writer->total_bytes());
  return result;
}

/// The body of the msgpack bin at the start of `data`.
std::span<const std::byte> bin_body(std::span<const std::byte> data) {
  const auto head = std::to_integer<unsigned>(data[0]);
  REQUIRE(head >= 0xc4);
  REQUIRE(head <= 0xc6);
  const auto length_size = size_t{1} << (head - 0xc4);
  size_t size = 0;
  for (size_t i = 0; i < length_size; ++i)
    size = size << 8 | std::to_integer<size_t>(data[1 + i]);
  return data.subspan(1 + length_size, size);
}

std::span<const std::byte> behind(std::span<const std::byte> data, std::string_view text) {
  const auto wanted = golden::as_bytes(text);
  const auto found = std::search(data.begin(), data.end(), wanted.begin(), wanted.end());
  REQUIRE(found != data.end());
  return data.subspan(static_cast<size_t>(found - data.begin()) + wanted.size());
}

/// The last frame of each message of `operation` in one direction.
std::vector<bytes> recorded(const char* operation, const char* direction) {
  std::vector<bytes> result;
  for (const auto& x : golden::vectors("mp/conversation_pickle_chunk16.json", "messages"))
    if (x.contains("op") && x["op"] == operation && x["dir"] == direction)
      result.push_back(golden::from_hex(x["frames"].back()["hex"].get<std::string>()));
  return result;
}

} // namespace

TEST_SUITE("mp tensor pickle") {
  TEST_CASE("lists that torch pickled are read to the byte") {
    size_t count = 0;
    for (const auto& x : golden::vectors("mp/pickle_payload.json", "cases")) {
      CAPTURE(x["dtype"]);
      const auto raw = golden::from_hex(x["raw_hex"].get<std::string>());
      for (const auto* field : {"torch_pickle_hex", "minimal_writer_hex"}) {
        const auto pickle = golden::from_hex(x[field].get<std::string>());
        const auto views = mp::read_tensor_list(pickle);
        REQUIRE(views);
        REQUIRE(views->size() == 1);
        const auto& view = views->front();
        CHECK(to_string(view.dtype) == x["dtype"].get<std::string>());
        CHECK(view.shape == shape_of(x["shape"]));
        CHECK(raw_of(pickle, view) == raw);
        ++count;
      }
    }
    CHECK(count == 8);
  }

  TEST_CASE("what is written is what the recorded writer wrote, item by item") {
    for (const auto& x : golden::vectors("mp/pickle_payload.json", "cases")) {
      const auto written
        = write(*tensor_dtype_from_name(x["dtype"].get<std::string>()), shape_of(x["shape"]),
                {golden::from_hex(x["raw_hex"].get<std::string>())});
      auto expected = golden::from_hex(x["minimal_writer_hex"].get<std::string>());
      // The recorded one has MARK ... APPENDS where this one appends each tensor at once.
      REQUIRE(expected[3] == std::byte{'('});
      expected.erase(expected.begin() + 3);
      expected[expected.size() - 2] = std::byte{'a'};
      CHECK(written == expected);
    }
  }

  TEST_CASE("a recorded conversation gets back the tensors that it stored") {
    const auto shape = tensor_shape{std::array<uint64_t, 4>{2, 2, 16, 16}};
    std::set<bytes> stored;
    for (const auto& frame : recorded("commit_store", "C->S")) {
      const auto pickle = bin_body(frame);
      const auto views = mp::read_tensor_list(pickle);
      REQUIRE(views);
      for (const auto& view : *views) {
        CHECK(view.dtype == tensor_dtype::float16);
        CHECK(view.shape == shape);
        stored.insert(raw_of(pickle, view));
      }
    }
    CHECK(stored.size() == 5);
    size_t retrieved = 0;
    for (const auto& frame : recorded("prepare_retrieve", "S->C")) {
      const auto pickle = bin_body(behind(frame, "\xa4"
                                                 "data"));
      if (pickle.empty()) // refused
        continue;
      const auto views = mp::read_tensor_list(pickle);
      REQUIRE(views);
      for (const auto& view : *views)
        CHECK(stored.contains(raw_of(pickle, view)));
      retrieved += views->size();
    }
    CHECK(retrieved == 13);
  }

  TEST_CASE("each dtype and any number of tensors is read as it was written") {
    for (size_t i = 0; i < tensor_dtype_count; ++i)
      for (const size_t count : {0, 1, 2, 300}) {
        const auto dtype = static_cast<tensor_dtype>(i);
        CAPTURE(to_string(dtype));
        CAPTURE(count);
        const auto shape = tensor_shape{std::array<uint64_t, 3>{3, 1, 5}};
        std::vector<bytes> tensors;
        for (size_t n = 0; n < count; ++n)
          tensors.emplace_back(15 * item_size_bytes(dtype), static_cast<std::byte>(n));
        const auto pickle = write(dtype, shape, tensors);
        const auto views = mp::read_tensor_list(pickle);
        REQUIRE(views);
        REQUIRE(views->size() == count);
        for (size_t n = 0; n < count; ++n) {
          CHECK((*views)[n].dtype == dtype);
          CHECK((*views)[n].shape == shape);
          CHECK(raw_of(pickle, (*views)[n]) == tensors[n]);
        }
        CHECK(mp::properties::check_tensor_list(pickle) == nullptr);
      }
  }

  TEST_CASE("the largest list is read, one more is neither read nor written") {
    const auto shape = tensor_shape{std::array<uint64_t, 4>{2, 1, 1, 1}};
    const std::vector<bytes> tensors(mp::max_tensor_count, bytes(2));
    auto pickle = write(tensor_dtype::int8, shape, tensors);
    const auto views = mp::read_tensor_list(pickle);
    REQUIRE(views);
    CHECK(views->size() == mp::max_tensor_count);
    CHECK(
      mp::tensor_list_writer::make(tensor_dtype::int8, shape, mp::max_tensor_count + 1).error()
      == errc::too_large);
    // ], then one tensor more
    const auto one = write(tensor_dtype::int8, shape, {bytes(2)});
    pickle.insert(pickle.begin() + 3, one.begin() + 3, one.end() - 1);
    const auto more = mp::read_tensor_list(pickle);
    REQUIRE_FALSE(more);
    CHECK(more.error() == errc::too_large);
  }

  TEST_CASE("a chunk of a layout larger than 4 GiB is announced with its size") {
    const auto layout
      = mp::make_kv_layout({tensor_dtype::float8_e4m3fn, false, 128, 65536, 8192, 16});
    REQUIRE(layout);
    const auto writer = mp::tensor_list_writer::make(layout->dtype, layout->shape(), 3);
    REQUIRE(writer);
    CHECK(writer->tensor_bytes() == layout->chunk_bytes());
    uint64_t total = 3 * layout->chunk_bytes();
    for (size_t i = 0; i <= 3; ++i)
      total += writer->piece(i).size();
    CHECK(writer->total_bytes() == total);
  }

  TEST_CASE("sizes that cannot be are not written") {
    using mp::tensor_list_writer;
    const auto make = [](std::vector<uint64_t> dims, size_t count) {
      return tensor_list_writer::make(tensor_dtype::float64, tensor_shape{dims}, count);
    };
    CHECK(make({2, 0, 3}, 1).error() == errc::invalid_argument);
    CHECK(make({UINT64_MAX, 0}, 1).error() == errc::invalid_argument);
    CHECK(make({UINT64_MAX, 2}, 1).error() == errc::too_large);
    CHECK(make({uint64_t{1} << 60}, 1).error() == errc::too_large);
    CHECK(make({uint64_t{1} << 60}, 0).error() == errc::too_large);
    CHECK(make({uint64_t{1} << 59}, 2).error() == errc::too_large);
    CHECK(make({uint64_t{1} << 59}, 1));
  }
}
