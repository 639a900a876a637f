#include "messages/digest.hpp"
#include "messages/token_hash.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <random>
#include <set>

using namespace kvasir;
using mp::token_hash_algorithm;

namespace {

mp::token_hasher blake3(uint32_t chunk_size, unsigned hash_bits = 256) {
  return {token_hash_algorithm::blake3, mp::none_hash(token_hash_algorithm::blake3, ""),
          chunk_size, hash_bits};
}

std::vector<uint32_t> random_tokens(size_t count, unsigned seed = 1) {
  std::mt19937 random{seed};
  std::vector<uint32_t> result(count);
  for (auto& x : result)
    x = static_cast<uint32_t>(random() % 150000);
  return result;
}

std::vector<mp::chunk_identity> chunks_of(const mp::token_chain& chain) {
  std::vector<mp::chunk_identity> result;
  for (size_t i = 0; i < chain.chunk_count(); ++i)
    result.push_back(chain.chunk(i));
  return result;
}

/// The chunks of a prompt that no chain has seen before.
std::vector<mp::chunk_identity> one_shot(const mp::token_hasher& hasher,
                                         std::span<const uint32_t> tokens) {
  mp::token_chain chain{hasher};
  CHECK(chain.extend(tokens) == tokens.size() / hasher.chunk_size());
  return chunks_of(chain);
}

std::vector<uint32_t> golden_tokens(const nlohmann::json& tokens) {
  if (!tokens.is_string())
    return tokens.get<std::vector<uint32_t>>();
  REQUIRE(tokens == "range(512)");
  std::vector<uint32_t> result(512);
  std::iota(result.begin(), result.end(), 0u);
  return result;
}

void check_golden(const nlohmann::json& cases, token_hash_algorithm algorithm,
                  const mp::token_hash& none) {
  size_t hashes = 0;
  for (const auto& x : cases) {
    CAPTURE(x["name"]);
    const auto tokens = golden_tokens(x["tokens"]);
    const auto chunks = one_shot({algorithm, none, x["chunk_size"]}, tokens);
    REQUIRE(chunks.size() == x["chunk_hashes_hex"].size());
    for (size_t i = 0; i < chunks.size(); ++i, ++hashes)
      CHECK(chunks[i].hash
            == golden::array_from_hex<32>(x["chunk_hashes_hex"][i].get<std::string>()));
  }
  CHECK(hashes == 7);
}

} // namespace

TEST_SUITE("mp token hash") {
  TEST_CASE("blake3 hashes are those of LMCache") {
    const auto recorded = golden::load("mp/token_hash.json").at("blake3");
    const auto none = mp::none_hash(token_hash_algorithm::blake3, "any seed");
    CHECK(none == golden::array_from_hex<32>(recorded["none_hash"].get<std::string>()));
    check_golden(recorded["cases"], token_hash_algorithm::blake3, none);
  }

  TEST_CASE("the fourth chunk of 256 tokens has the hash of LMCache") {
    std::vector<uint32_t> tokens(1024);
    std::iota(tokens.begin(), tokens.end(), 0u);
    const auto chunks = one_shot(blake3(256), tokens);
    REQUIRE(chunks.size() == 4);
    CHECK(chunks[2].hash
          == golden::array_from_hex<32>(
            "4d63c63139bfd6f32e22b9a3356d2aab5bcc52694fad77206308b1f5c0d58898"));
    CHECK(chunks[3].hash
          == golden::array_from_hex<32>(
            "a0ec7dfe7261a56bb12a7f16528d1cd3a2cb960b9aafd140865ab5b7bcf4c291"));
  }

  TEST_CASE("sha256_cbor hashes are those of vLLM's definition") {
    const auto recorded = golden::load("mp/token_hash.json").at("sha256_cbor_with_vllm");
    const auto none = mp::none_hash(token_hash_algorithm::sha256_cbor, "0");
    CHECK(none == golden::array_from_hex<32>(recorded["none_hash_hex"].get<std::string>()));
    check_golden(recorded["cases"], token_hash_algorithm::sha256_cbor, none);
  }

  TEST_CASE("the seed changes every sha256_cbor hash and no blake3 hash") {
    const auto tokens = random_tokens(64);
    for (const auto algorithm :
         {token_hash_algorithm::blake3, token_hash_algorithm::sha256_cbor}) {
      const auto a = one_shot({algorithm, mp::none_hash(algorithm, "0"), 16}, tokens);
      const auto b = one_shot({algorithm, mp::none_hash(algorithm, "1"), 16}, tokens);
      CHECK((a[3].hash == b[3].hash) == (algorithm == token_hash_algorithm::blake3));
      CHECK(a[3].digest == b[3].digest);
    }
  }

  TEST_CASE("names of algorithms that depend on the process are refused with the reason") {
    CHECK(mp::parse_token_hash_algorithm("blake3") == token_hash_algorithm::blake3);
    CHECK(mp::parse_token_hash_algorithm("sha256_cbor") == token_hash_algorithm::sha256_cbor);
    struct {
      const char* name;
      const char* reason;
    } const refused[] = {{"builtin", "one process"}, {"sha256", "pickle"},
                         {"xxhash", "unknown"},      {"", "unknown"},
                         {"BLAKE3", "unknown"},      {"blake3 ", "unknown"}};
    for (const auto& x : refused) {
      CAPTURE(x.name);
      const auto parsed = mp::parse_token_hash_algorithm(x.name);
      REQUIRE_FALSE(parsed);
      CHECK(parsed.error() == errc::invalid_argument);
      CHECK(to_string(parsed.error()).find(x.reason) != std::string::npos);
    }
  }

  TEST_CASE("128 k tokens that arrive bit by bit have the hashes of all at once") {
    const auto tokens = random_tokens(128 * 1024);
    const auto whole = one_shot(blake3(256), tokens);
    REQUIRE(whole.size() == 512);
    mp::token_chain chain{blake3(256)};
    std::mt19937 random{2};
    for (size_t done = 0; done < tokens.size();) {
      done = std::min<size_t>(tokens.size(), done + random() % 3000);
      REQUIRE(chain.extend(std::span{tokens}.first(done)) == done / 256);
      REQUIRE(chain.chunk_count() == done / 256);
    }
    CHECK(chunks_of(chain) == whole);
  }

  TEST_CASE("a chunk has a hash when its last token is there") {
    const auto tokens = random_tokens(513);
    for (const size_t size : {0, 1, 255, 256, 257, 511, 512, 513}) {
      CAPTURE(size);
      mp::token_chain chain{blake3(256)};
      CHECK(chain.extend(std::span{tokens}.first(size)) == size / 256);
      CHECK(chain.chunk_count() == size / 256);
      // What was hashed of a part does not depend on where it was cut.
      chain.extend(tokens);
      CHECK(chunks_of(chain) == one_shot(blake3(256), tokens));
    }
  }

  TEST_CASE("a shorter prompt keeps the longer chain") {
    const auto tokens = random_tokens(1024);
    mp::token_chain chain{blake3(256)};
    CHECK(chain.extend(tokens) == 4);
    const auto whole = chunks_of(chain);
    CHECK(chain.extend(std::span{tokens}.first(600)) == 2);
    CHECK(chain.extend({}) == 0);
    CHECK(chain.chunk_count() == 4);
    CHECK(chunks_of(chain) == whole);
    CHECK(chain.tokens().size() == 1024);
  }

  TEST_CASE("another token anywhere starts its chunk and all after it anew") {
    const auto tokens = random_tokens(1100);
    const auto before = one_shot(blake3(256), tokens);
    for (const size_t where : {0, 1, 255, 256, 511, 512, 1023, 1024, 1099})
      for (const size_t size : {where + 1, tokens.size(), tokens.size() + 200}) {
        CAPTURE(where);
        CAPTURE(size);
        auto other = tokens;
        other.resize(size, 7);
        other[where] ^= 1;
        mp::token_chain chain{blake3(256)};
        chain.extend(tokens);
        CHECK(chain.extend(other) == size / 256);
        CHECK(chunks_of(chain) == one_shot(blake3(256), other));
        for (size_t i = 0; i < std::min(chain.chunk_count(), before.size()); ++i) {
          CHECK((chain.chunk(i).hash == before[i].hash) == (i < where / 256));
          CHECK((chain.chunk(i).digest == before[i].digest) == (i < where / 256));
        }
        // And back again.
        CHECK(chain.extend(tokens) == 4);
        CHECK(chunks_of(chain) == before);
      }
  }

  TEST_CASE("a hash cut to 8 bits collides, the digest does not") {
    const auto hasher = blake3(4, 8);
    std::set<std::byte> hashes;
    std::set<uint64_t> digests;
    for (unsigned seed = 0; seed < 1000; ++seed) {
      const auto chunks = one_shot(hasher, random_tokens(4, seed));
      for (size_t i = 1; i < 32; ++i)
        CHECK(chunks[0].hash[i] == std::byte{});
      hashes.insert(chunks[0].hash[0]);
      digests.insert(chunks[0].digest);
    }
    CHECK(hashes.size() > 200); // all 8 bits are in use
    CHECK(hashes.size() <= 256);
    CHECK(digests.size() == 1000);
    // The bits are the first of the whole hash.
    const auto tokens = random_tokens(4);
    const auto whole = one_shot(blake3(4), tokens)[0].hash;
    CHECK(one_shot(hasher, tokens)[0].hash[0] == whole[0]);
    const auto cut = one_shot(blake3(4, 12), tokens)[0].hash;
    CHECK(cut[1] == (whole[1] & std::byte{0xf0}));
    CHECK(cut[2] == std::byte{});
  }

  TEST_CASE("a digest is XXH3-64 of the tokens, seeded with the digest before") {
    const auto tokens = random_tokens(8);
    const auto bytes = std::as_bytes(std::span{tokens});
    const auto chunks = one_shot(blake3(4), tokens);
    CHECK(chunks[0].digest == digest64(bytes.first(16), 0));
    CHECK(chunks[1].digest == digest64(bytes.last(16), chunks[0].digest));
    CHECK(digest64({}, 0) == 0x2d06800538d394c2); // the published value of no bytes
  }

  TEST_CASE("equal tokens in another place have another digest") {
    auto tokens = random_tokens(512);
    std::copy_n(tokens.begin(), 256, tokens.begin() + 256);
    const auto chunks = one_shot(blake3(256), tokens);
    CHECK(chunks[0].digest != chunks[1].digest);
    CHECK(chunks[0].hash != chunks[1].hash);
  }

  TEST_CASE("a chunk longer than the hash's buffers is hashed whole") {
    const auto tokens = random_tokens(5000);
    for (const auto algorithm :
         {token_hash_algorithm::blake3, token_hash_algorithm::sha256_cbor}) {
      const mp::token_hasher hasher{algorithm, mp::none_hash(algorithm, "0"), 5000};
      const auto hash = one_shot(hasher, tokens)[0].hash;
      for (const size_t where : {0, 511, 512, 2500, 4999}) {
        auto other = tokens;
        ++other[where];
        CHECK(one_shot(hasher, other)[0].hash != hash);
      }
    }
  }
}
