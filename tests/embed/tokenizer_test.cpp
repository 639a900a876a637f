#include "examples/engine/tokenizer.hpp"

#include "support/gguf_writer.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::example;
using namespace kvasir::test;

namespace {

using ids = std::vector<uint32_t>;

/// A vocabulary of a few letters; Ġ is a space.
struct small_vocabulary {
  std::vector<std::string> words{"<end>", "a",  "b",  "Ġ",  "1",  "\xc3\x83", // Ã: byte 0xc3
                                 "¤",     "ab", "Ġa", "ĠĠ", "Ġab"};
  std::vector<std::string> merges{"Ġ a", "a b", "Ġ Ġ", "Ġa b"};
  std::string pre = "smollm";
  uint32_t end = 0;

  caf::expected<tokenizer> load() {
    std::vector<int32_t> types(words.size(), 1);
    types[0] = 3;
    gguf_writer writer;
    writer.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", words)
      .integers("tokenizer.ggml.token_type", types)
      .texts("tokenizer.ggml.merges", merges)
      .integer("tokenizer.ggml.eos_token_id", end);
    auto bytes = writer.file();
    return tokenizer::load(*gguf_file::parse(bytes_over(bytes)));
  }
};

} // namespace

TEST_CASE("merges are made in the order of their ranks, within words") {
  auto words = small_vocabulary{}.load();
  REQUIRE(words);
  CHECK(*words->encode("") == ids{});
  CHECK(*words->encode("abab") == ids{7, 7});
  CHECK(*words->encode("ab ab") == ids{7, 10});
  CHECK(*words->encode("a   b") == ids{1, 9, 3, 2});
}

TEST_CASE("digits stand alone, and leave spaces before them together") {
  auto words = small_vocabulary{}.load();
  REQUIRE(words);
  CHECK(*words->encode("11") == ids{4, 4});
  CHECK(*words->encode("a  1") == ids{1, 9, 4});
}

TEST_CASE("control tokens in a text are these tokens") {
  auto words = small_vocabulary{}.load();
  REQUIRE(words);
  CHECK(words->end_token() == 0);
  CHECK(*words->encode("a<end>b<end>") == ids{1, 0, 2, 0});
}

TEST_CASE("tokens are decoded to the bytes of the text") {
  auto words = small_vocabulary{}.load();
  REQUIRE(words);
  std::string text = "ab ä  1<end>"; // ä is the bytes 0xc3 and 0xa4.
  auto tokens = words->encode(text);
  REQUIRE(tokens);
  CHECK(words->decode(*tokens) == text);
  CHECK(words->decode(ids{1, 4'000'000'000, 2}) == "ab");
}

TEST_CASE("texts without tokens are refused") {
  auto words = small_vocabulary{}.load();
  REQUIRE(words);
  CHECK(words->encode("a?").error() == errc::invalid_argument);
  CHECK(words->encode("a\xff").error() == errc::invalid_argument);
}

TEST_CASE("a tokenizer that contradicts itself is refused") {
  small_vocabulary vocabulary;
  SUBCASE("another way to find words") {
    vocabulary.pre = "llama-bpe";
  }
  SUBCASE("an end beyond the vocabulary") {
    vocabulary.end = 100;
  }
  SUBCASE("a token twice") {
    vocabulary.words.push_back("ab");
  }
  SUBCASE("a token with a character that is no byte") {
    vocabulary.words.push_back("漢");
  }
  SUBCASE("an empty control token") {
    vocabulary.words[0] = "";
  }
  SUBCASE("a merge of what is no token") {
    vocabulary.merges.push_back("x y");
  }
  SUBCASE("a merge to what is no token") {
    vocabulary.merges.push_back("b a");
  }
  SUBCASE("a merge of one") {
    vocabulary.merges.push_back("ab");
  }
  auto loaded = vocabulary.load();
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error() == errc::malformed_frame);
}
