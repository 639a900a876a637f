#include "messages/chunk_key.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace kvasir;
using namespace kvasir::mp;

namespace {

chunk_key some_key() {
  chunk_key result{{{}, 0x0102030405060708}, 4, 3, 0xf1f2f3f4f5f6f7f8, "tenant", "model"};
  for (size_t i = 0; i < result.chunk.hash.size(); ++i)
    result.chunk.hash[i] = static_cast<std::byte>(0xe0 + i);
  return result;
}

std::string written(const chunk_key& key) {
  return chunk_key_prefix{key.world_size, key.layout_digest, key.salt, key.model}
    .key(key.chunk, key.rank)
    .bytes;
}

} // namespace

TEST_SUITE_BEGIN("chunk key");

TEST_CASE("what is written is read back") {
  std::vector<chunk_key> keys(1, some_key());
  auto add = [&](auto change) {
    change(keys.emplace_back(some_key()));
  };
  add([](auto& key) { key.salt.clear(); });
  add([](auto& key) { key.salt = std::string(0xffff, 's'); });
  add([](auto& key) { key.model.clear(); });
  add([](auto& key) { key.model = std::string("a\0\xff@", 4); });
  add([](auto& key) { key.salt = std::string(1, '\0'); });
  add([](auto& key) { key.world_size = 1, key.rank = 0; });
  add([](auto& key) { key.world_size = 255, key.rank = 254; });
  add([](auto& key) { key.chunk = {}; });
  add([](auto& key) { key.layout_digest = UINT64_MAX; });
  // A salt and a model do not run into each other.
  add([](auto& key) { key.salt = "tenantm", key.model = "odel"; });
  std::set<std::string> texts;
  for (auto& key : keys) {
    auto text = written(key);
    CHECK(text.front() == '\0'); // No key of lm://.
    auto read = parse_chunk_key(text);
    REQUIRE(read);
    CHECK(*read == key);
    CHECK(written(*read) == text);
    texts.insert(text);
  }
  CHECK(texts.size() == keys.size());
}

TEST_CASE("every field tells keys apart") {
  auto key = some_key();
  std::set<std::string> texts{written(key)};
  for (size_t i = 0; i < key.chunk.hash.size(); ++i) {
    auto changed = key;
    changed.chunk.hash[i] ^= std::byte{1};
    texts.insert(written(changed));
  }
  for (auto bit = 0; bit < 64; ++bit) {
    auto changed = key;
    changed.chunk.digest ^= 1ull << bit;
    texts.insert(written(changed));
    changed = key;
    changed.layout_digest ^= 1ull << bit;
    texts.insert(written(changed));
  }
  CHECK(texts.size() == 1 + 32 + 2 * 64);
}

TEST_CASE("what no key was written as is refused") {
  auto text = written(some_key());
  CHECK_FALSE(parse_chunk_key(""));
  for (size_t size = 0; size < 56 + 6; ++size) // All before the end of the salt.
    CHECK_FALSE(parse_chunk_key(std::string_view{text}.substr(0, size)));
  auto with = [&](size_t at, unsigned char byte) {
    auto changed = text;
    changed[at] = static_cast<char>(byte);
    return parse_chunk_key(changed);
  };
  CHECK_FALSE(with(0, 'm'));
  CHECK_FALSE(with(1, 0));
  CHECK_FALSE(with(1, 2));
  for (size_t at = 2; at < 6; ++at) // World size and rank are there twice.
    CHECK_FALSE(with(at, 9));
  CHECK_FALSE(with(54, 1)); // A salt longer than what is left.
  for (auto [world_size, rank] : {std::pair{0u, 0u}, {1u, 1u}, {4u, 4u}, {4u, 255u}}) {
    auto odd = some_key();
    odd.world_size = world_size;
    odd.rank = rank;
    CAPTURE(world_size);
    CHECK_FALSE(parse_chunk_key(written(odd)));
  }
}

TEST_CASE("people read model, world, rank, hash and salt") {
  auto key = some_key();
  const std::string hash = "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
  CHECK(display_text(key) == "model@4@3@" + hash + "@tenant");
  key.salt.clear();
  CHECK(display_text(key) == "model@4@3@" + hash);
  CHECK(display_text(*parse_chunk_key(written(key))) == display_text(key));
}

TEST_SUITE_END();
