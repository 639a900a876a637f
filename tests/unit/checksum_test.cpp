#include "backends/checksum.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 rng{static_cast<unsigned>(count)};
  std::vector<std::byte> result(count);
  for (auto& b : result)
    b = static_cast<std::byte>(rng());
  return result;
}

} // namespace

TEST_CASE("the checksum is XXH3-64 with seed 0") {
  CHECK(kvasir::checksum({}) == 0x2d06800538d394c2); // the published value of no bytes
}

TEST_CASE("a stream of pieces has the checksum of the whole") {
  std::mt19937 rng{3};
  kvasir::checksum_stream stream;
  for (size_t size : {0, 1, 16, 17, 240, 241, 255, 256, 257, 1024, 4096, 65537, 1000003}) {
    CAPTURE(size);
    auto bytes = random_bytes(size);
    stream.reset();
    for (size_t done = 0; done < size;) {
      auto piece = std::min<size_t>(rng() % 5000, size - done);
      stream.update(std::span{bytes}.subspan(done, piece));
      done += piece;
    }
    CHECK(stream.digest() == kvasir::checksum(bytes));
    stream.update(bytes);
    auto twice = bytes;
    twice.insert(twice.end(), bytes.begin(), bytes.end());
    CHECK(stream.digest() == kvasir::checksum(twice));
  }
}

TEST_CASE("a copy has the bytes and the checksum of what was copied") {
  for (size_t size : {0, 1, 65535, 65536, 65537, 1000003}) {
    CAPTURE(size);
    auto bytes = random_bytes(size);
    std::vector<std::byte> copy(size + 1);
    CHECK(kvasir::copy_and_checksum(copy.data(), bytes) == kvasir::checksum(bytes));
    CHECK(std::equal(bytes.begin(), bytes.end(), copy.begin()));
    CHECK(copy.back() == std::byte{0});
  }
}

TEST_CASE("a flipped bit changes the checksum") {
  auto bytes = random_bytes(10000);
  auto before = kvasir::checksum(bytes);
  bytes[7777] ^= std::byte{4};
  CHECK(kvasir::checksum(bytes) != before);
}

TEST_CASE("a stream can be moved") {
  kvasir::checksum_stream a;
  auto bytes = random_bytes(1000);
  a.update(bytes);
  kvasir::checksum_stream b = std::move(a);
  CHECK(b.digest() == kvasir::checksum(bytes));
}
