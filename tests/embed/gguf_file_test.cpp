#include "examples/engine/dequantize.hpp"
#include "support/gguf_writer.hpp"

#include <ATen/core/Tensor.h>
#include <c10/util/Half.h>
#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::example;
using namespace kvasir::test;

namespace {

/// Something of all that a model's file has.
gguf_writer small_model() {
  gguf_writer result;
  std::string numbers;
  for (int i = 0; i < 6; ++i)
    numbers += gguf_writer::bytes_of(static_cast<float>(i));
  result.text("name", "small")
    .integer("layers", 3)
    .value("base", 6, gguf_writer::bytes_of(0.5f))
    .texts("words", {"one", "", "three"})
    .integers("kinds", {1, -2, 3})
    .tensor("matrix", {3, 2}, 0, numbers);
  return result;
}

/// What of a file can be asked for, to see that nothing of it crashes.
void read_all(const gguf_file& file) {
  for (auto key : {"name", "layers", "base", "words", "kinds"}) {
    (void)file.text(key);
    (void)file.integer(key);
    (void)file.number(key);
    (void)file.texts(key);
    (void)file.integers(key);
  }
  if (auto tensor = file.tensor("matrix"))
    (void)dequantize(*tensor);
}

/// The first numbers of a tensor of one block.
std::vector<float> numbers_of(uint32_t type, const std::string& block) {
  gguf_writer writer;
  writer.tensor("t", {32}, type, block);
  auto bytes = writer.file();
  auto file = gguf_file::parse(bytes_over(bytes));
  REQUIRE(file);
  auto tensor = dequantize(*file->tensor("t"));
  auto data = tensor.const_data_ptr<float>();
  return {data, data + tensor.numel()};
}

} // namespace

TEST_CASE("a GGUF file gives back what was written into it") {
  auto bytes = small_model().file();
  auto file = gguf_file::parse(bytes_over(bytes));
  REQUIRE(file);
  CHECK(*file->text("name") == "small");
  CHECK(*file->integer("layers") == 3);
  CHECK(*file->number("base") == 0.5);
  CHECK(*file->texts("words") == std::vector<std::string_view>{"one", "", "three"});
  CHECK(*file->integers("kinds") == std::vector<int64_t>{1, -2, 3});
  auto matrix = dequantize(*file->tensor("matrix"));
  CHECK(matrix.sizes() == at::IntArrayRef{2, 3});
  CHECK(matrix[1][0].item<float>() == 3);
}

TEST_CASE("what is not there, or of another type, is an error") {
  auto bytes = small_model().file();
  auto file = gguf_file::parse(bytes_over(bytes));
  REQUIRE(file);
  CHECK(file->integer("none").error() == errc::not_found);
  CHECK(file->tensor("none").error() == errc::not_found);
  CHECK(file->integer("name").error() == errc::malformed_frame);
  CHECK(file->number("layers").error() == errc::malformed_frame);
  CHECK(file->text("words").error() == errc::malformed_frame);
  CHECK(file->integers("words").error() == errc::malformed_frame);
}

TEST_CASE("a file that ends anywhere too early is refused") {
  auto bytes = small_model().file();
  auto end = bytes.size() - 8; // The rest is padding behind the 24 bytes of numbers.
  REQUIRE(gguf_file::parse(bytes_over(bytes).first(end)));
  for (size_t size = 0; size < end; ++size) {
    CAPTURE(size);
    // In a buffer of just that size, so that a sanitizer sees a read behind it.
    std::vector<std::byte> cut(bytes_over(bytes).begin(), bytes_over(bytes).begin() + size);
    auto file = gguf_file::parse(cut);
    REQUIRE_FALSE(file);
    CHECK(file.error() == errc::malformed_frame);
  }
}

TEST_CASE("a wrong byte anywhere never crashes the reader") {
  auto bytes = small_model().file();
  for (size_t i = 0; i < bytes.size(); ++i)
    for (auto wrong : {'\x00', '\x01', '\x08', '\x09', '\x7f', '\xff'}) {
      auto damaged = bytes;
      damaged[i] = wrong;
      if (auto file = gguf_file::parse(bytes_over(damaged)))
        read_all(*file);
    }
}

TEST_CASE("counts and sizes that no file could hold are refused before they are used") {
  auto many = gguf_writer::bytes_of(UINT64_MAX);
  gguf_writer writer;
  SUBCASE("a text") {
    writer.value("k", 8, many);
  }
  SUBCASE("an array of numbers whose size overflows to 0") {
    writer.value("k", 9,
                 gguf_writer::bytes_of(uint32_t{10}) + gguf_writer::bytes_of(1ull << 61));
  }
  SUBCASE("an array of texts") {
    writer.value("k", 9, gguf_writer::bytes_of(uint32_t{8}) + many);
  }
  SUBCASE("an array of arrays") {
    writer.value("k", 9,
                 gguf_writer::bytes_of(uint32_t{9}) + gguf_writer::bytes_of(uint64_t{1}));
  }
  SUBCASE("a tensor whose size overflows to 0") {
    writer.tensor("t", {1ull << 32, 1ull << 32}, 0, {});
  }
  SUBCASE("a tensor of no numbers") {
    writer.tensor("t", {0}, 0, {});
  }
  SUBCASE("rows that end within a block") {
    writer.tensor("t", {16, 2}, 8, std::string(34, 0));
  }
  SUBCASE("an alignment of 0") {
    writer.integer("general.alignment", 0);
  }
  SUBCASE("a name twice") {
    writer.integer("k", 0).integer("k", 0);
  }
  auto bytes = writer.file();
  auto file = gguf_file::parse(bytes_over(bytes));
  REQUIRE_FALSE(file);
  CHECK(file.error() == errc::malformed_frame);
}

TEST_CASE("a file that is not there is an error of its own") {
  CHECK(gguf_file::open("/nowhere/model.gguf").error() == errc::io_error);
  CHECK(gguf_file::open("/dev/null").error() == errc::io_error);
}

TEST_CASE("quantized blocks become the numbers they stand for") {
  auto half = [](float number) {
    return gguf_writer::bytes_of(c10::Half(number).x);
  };
  std::string q8;
  for (int i = -16; i < 16; ++i)
    q8.push_back(static_cast<char>(i));
  auto eights = numbers_of(8, half(0.5f) + q8);
  CHECK(eights[0] == -8);
  CHECK(eights[31] == 7.5f);

  std::string q4;
  for (int i = 0; i < 16; ++i)
    q4.push_back(static_cast<char>(i | (15 - i) << 4));
  auto fours = numbers_of(3, half(2) + half(-1) + q4);
  CHECK(fours[0] == -1);
  CHECK(fours[15] == 29);
  CHECK(fours[16] == 29);
  CHECK(fours[31] == -1);
}
