#include "messages/lm_key.hpp"

#include "fuzz/lm_properties.hpp"
#include "messages/lm_frame.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

using namespace kvasir;
using namespace std::literals;

namespace {

std::span<const std::byte, 150> field_of(const lm::client_header_bytes& frame) {
  return std::span{frame}.last<150>();
}

std::string decimal(std::string_view hex) {
  const bool negative = hex.starts_with('-');
  std::string digits{"0"}; // least significant first
  for (char c : hex.substr(negative ? 1 : 0)) {
    unsigned carry = static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    for (auto& digit : digits) {
      carry += static_cast<unsigned>(digit - '0') * 16;
      digit = static_cast<char>('0' + carry % 10);
      carry /= 10;
    }
    for (; carry != 0; carry /= 10)
      digits += static_cast<char>('0' + carry % 10);
  }
  return (negative ? "-" : "") + std::string{digits.rbegin(), digits.rend()};
}

/// Does `key` say what LMCache's server decoded? Its dtype is torch's name.
void check_parts(const lm::cache_key& key, const nlohmann::json& expected) {
  CHECK(key.model == expected["model_name"].get<std::string>());
  CHECK(key.world_size == std::to_string(expected["world_size"].get<int>()));
  CHECK(key.worker_id == std::to_string(expected["worker_id"].get<int>()));
  CHECK(decimal(key.chunk_hash) == expected["chunk_hash"].get<std::string>());
  const auto tables = golden::load("lm/tables.json");
  CHECK(tables["key_dtype_parse"][key.dtype] == expected["dtype"]);
  CHECK(key.layer_id.has_value() == (expected["class"] == "LayerCacheEngineKey"));
  if (key.layer_id)
    CHECK(*key.layer_id == std::to_string(expected["layer_id"].get<int>()));
  const auto& tags = expected["tags"];
  REQUIRE(key.tags.size() == (tags.is_null() ? 0 : tags.size()));
  for (size_t i = 0; i < key.tags.size(); ++i) {
    CHECK(key.tags[i].name == tags[i][0].get<std::string>());
    CHECK(key.tags[i].value == tags[i][1].get<std::string>());
  }
}

std::string canonical(std::string_view text) {
  const auto key = lm::canonical_key(golden::key_field(text));
  return key ? key.bytes : "<" + std::string{lm::to_string(key.fault)} + ">";
}

/// All golden key fields, as seeds for mutation.
std::vector<std::string> golden_keys() {
  std::vector<std::string> result;
  auto add = [&](const nlohmann::json& x, const char* name) {
    if (!x.contains(name))
      return;
    const auto frame = golden::array_from_hex<186>(x[name].get<std::string>());
    const std::string text{reinterpret_cast<const char*>(frame.data()) + 36, 150};
    result.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
  };
  for (const auto& x : golden::vectors("lm/keys.json"))
    add(x, "get_frame_hex");
  for (const auto& x : golden::vectors("lm/key_strings.json"))
    add(x, "frame_hex");
  for (const auto& x : golden::vectors("lm/python_keys.json"))
    result.push_back(x["key"].get<std::string>());
  return result;
}

} // namespace

TEST_SUITE("lm key") {
  TEST_CASE("every key that LMCache's client sends is filed as its server files it") {
    for (const auto& x : golden::vectors("lm/keys.json")) {
      const auto name = x["name"].get<std::string>();
      CAPTURE(name);
      if (x.contains("client_error")) { // longer than 150 characters, never sent
        CHECK(lm::canonical_key(x["to_string"].get<std::string>()).fault
              == lm::key_fault::too_long);
        continue;
      }
      const auto frame = golden::array_from_hex<186>(x["get_frame_hex"].get<std::string>());
      const auto text = x["to_string"].get<std::string>();
      const auto written = lm::encode_client_header({lm::command::get, 0, {1, 2, {}}, 0, text});
      const auto key = lm::canonical_key(field_of(frame));
      if (name == "model_newline") { // a control character stays an error here
        CHECK(key.fault == lm::key_fault::control_character);
        CHECK_FALSE(written);
        continue;
      }
      // LMCache cuts at 150 bytes; we refuse to write what would name another object.
      if (text.size() > 150)
        CHECK_FALSE(written);
      else
        CHECK(*written == frame);
      REQUIRE(key);
      if (x.contains("server_error")) {
        CHECK(key.kind == lm::key_kind::raw);
        continue;
      }
      CHECK(key.bytes == x["server_canonical_string"].get<std::string>());
      CHECK(key.kind
            == (x["server_parses_to"]["class"] == "LayerCacheEngineKey" ? lm::key_kind::layer
                                                                        : lm::key_kind::chunk));
      const auto parsed = lm::parse_key(key.bytes);
      REQUIRE(parsed);
      check_parts(*parsed, x["server_parses_to"]);
    }
  }

  TEST_CASE("every odd spelling is filed as LMCache's server files it") {
    const std::set<std::string> errors{
      "nul_padded", "invalid_utf8", "all_nul", "all_space", "", "m@1@0@ff@half\0\0"s};
    const auto data = golden::load("lm/key_strings.json");
    std::map<std::string, std::string> filed;
    for (const auto& x : data["vectors"]) {
      const auto name = x.value("name", x.value("key_string", ""));
      CAPTURE(name);
      const auto frame = golden::array_from_hex<186>(x["frame_hex"].get<std::string>());
      const auto key = lm::canonical_key(field_of(frame));
      CHECK(static_cast<bool>(key) == !errors.contains(name));
      if (!key)
        continue;
      filed[name] = key.bytes;
      CHECK((key.kind == lm::key_kind::raw) == x.contains("server_error"));
      if (x.contains("server_error"))
        continue;
      CHECK(key.bytes == x["canonical"].get<std::string>());
      const auto parsed = lm::parse_key(key.bytes);
      REQUIRE(parsed);
      check_parts(*parsed, x["parses_to"]);
    }
    std::set<std::string> classes;
    for (const auto& x : data["equality_classes"]) {
      classes.insert(x["canonical"].get<std::string>());
      for (const auto& member : x["members"])
        CHECK(filed[member.get<std::string>()] == x["canonical"].get<std::string>());
    }
    CHECK(classes.size() == data["equality_classes"].size());
  }

  TEST_CASE("numbers, blanks and digits are read as CPython reads them") {
    for (const auto& x : golden::vectors("lm/python_keys.json")) {
      const auto text = x["key"].get<std::string>();
      CAPTURE(text);
      const auto parsed = lm::parse_key(text);
      REQUIRE(parsed.has_value() == x.contains("canonical"));
      if (parsed)
        CHECK(lm::to_string(*parsed) == x["canonical"].get<std::string>());
      REQUIRE(lm::properties::check_key(text) == nullptr);
      REQUIRE(lm::canonical_key(golden::key_field(text)) == lm::canonical_key(text));
    }
  }

  TEST_CASE("numbers have no largest value") {
    const std::string nines(60, '9');
    const std::string effs(60, 'f');
    const auto text = "m@" + nines + "@-" + nines + "@" + "0" + effs + "@half";
    CHECK(canonical("m@1@0@-000@half@007") == "m@1@0@0@half@7");
    CHECK(lm::canonical_key(text).fault == lm::key_fault::too_long);
    const auto key = lm::parse_key(text);
    REQUIRE(key);
    CHECK(key->world_size == nines);
    CHECK(key->worker_id == "-" + nines);
    CHECK(key->chunk_hash == effs);
  }

  TEST_CASE("a key that Python cannot parse stays as it is, without the blanks around it") {
    CHECK(canonical("  vllm@m@1@0@ff@half ") == "vllm@m@1@0@ff@half");
    CHECK(canonical("nokey") == "nokey");
    CHECK(canonical("m@1@0@FF@HALF") == "m@1@0@FF@HALF");
    CHECK(canonical("m@1@0@0xff@half@3@4") == "m@1@0@0xff@half@3@4");
    CHECK(canonical("m@1@0@0xff@half@\xc2\xb2") == "m@1@0@0xff@half@\xc2\xb2");
    CHECK(lm::canonical_key("nokey").kind == lm::key_kind::raw);
  }

  TEST_CASE("a chunk key and a layer key are told apart") {
    CHECK(lm::canonical_key("m@1@0@ff@half").kind == lm::key_kind::chunk);
    CHECK(lm::canonical_key("m@1@0@ff@half@3").kind == lm::key_kind::layer);
    CHECK(lm::canonical_key("m@1@0@ff@half@3@a%1").kind == lm::key_kind::layer);
    CHECK(lm::canonical_key("m@1@0@ff@half@3%").kind == lm::key_kind::chunk);
    CHECK(lm::canonical_key("m@1@0@ff@half@-3").kind == lm::key_kind::raw);
  }

  TEST_CASE("control characters, NUL padding and invalid UTF-8 are errors") {
    using enum lm::key_fault;
    struct {
      std::string_view text;
      lm::key_fault fault;
    } const cases[] = {
      {"", empty},
      {"   ", empty},
      {"\t\n\xc2\x85", empty},
      {"m@1@0@ff@half\0"sv, control_character},
      {"a\nb@1@0@ff@half", control_character},
      {"m@1@0@ff@half@t%a\x7f", control_character},
      {"\x1b[2Jraw", control_character},
      {"a\xc2\x9b@1@0@ff@half", control_character},
      {"a\xff", invalid_utf8},
      {"a\xc0\xaf", invalid_utf8},         // overlong
      {"a\xe0\x80\xaf", invalid_utf8},     // overlong
      {"a\xf0\x80\x80\xaf", invalid_utf8}, // overlong
      {"a\xed\xa0\x80", invalid_utf8},     // surrogate
      {"a\xf4\x90\x80\x80", invalid_utf8}, // beyond U+10FFFF
      {"a\xf8\x88\x80\x80\x80", invalid_utf8},
      {"a\xc3", invalid_utf8}, // cut
      {"a\xc3(", invalid_utf8},
      {"\x80", invalid_utf8},
    };
    for (const auto& x : cases) {
      CAPTURE(x.text);
      const auto key = lm::canonical_key(x.text);
      CHECK(key.fault == x.fault);
      CHECK(key.bytes.empty());
      CHECK_FALSE(lm::to_string(key.fault).empty());
    }
    CHECK(lm::to_string(none) == "none");
    CHECK(lm::to_string(static_cast<lm::key_fault>(200)) == "unknown");
    CHECK_FALSE(lm::parse_key("\xff@1@0@ff@half"));
  }

  TEST_CASE("blanks that Python drops may be control characters") {
    CHECK(canonical("m@\t1\n@0@\x0b"
                    "ff@half\x1f")
          == "m@1@0@ff@half");
    CHECK(canonical("m@\x1c"
                    "1@0@ff@half")
          == "<control character in key>"); // int() does not skip this one
  }

  TEST_CASE("150 bytes are a key, 151 are not") {
    CHECK(lm::canonical_key(std::string(150, 'k')));
    CHECK(lm::canonical_key(std::string(151, 'k')).fault == lm::key_fault::too_long);
    CHECK(lm::canonical_key(std::string(100, ' ') + "k" + std::string(100, ' ')).bytes == "k");
  }

  TEST_CASE("a repeated tag keeps its place and takes the last value") {
    CHECK(canonical("m@1@0@ff@half@a%1@b%2@a%3") == "m@1@0@ff@half@a%3@b%2");
    CHECK(canonical("m@1@0@ff@half@a%1@b%2") != canonical("m@1@0@ff@half@b%2@a%1"));
  }

  TEST_CASE("a key whose canonical form would lose a blank stays raw") {
    const auto key = lm::canonical_key("m@1@0@ff@half@b%1@a%x @b%2");
    CHECK(key.kind == lm::key_kind::raw);
    CHECK(key.bytes == "m@1@0@ff@half@b%1@a%x @b%2");
    CHECK(key.bytes != canonical("m@1@0@ff@half@b%2@a%x"));
  }

  TEST_CASE("the fast path agrees with the slow one on all golden keys and their mutations") {
    const auto seeds = golden_keys();
    const std::string_view pieces[]
      = {"@", "%", " ",  "0",        "-",  "+",    "_",        "0x",
         "A", "f", "\n", "\xc2\xa0", "\0", "\x7f", "\xd9\xa3", "\xff"};
    std::mt19937 random{4711};
    auto below = [&](size_t limit) {
      return static_cast<size_t>(random() % limit);
    };
    size_t good = 0;
    for (const auto& seed : seeds)
      for (int round = 0; round < 100; ++round) {
        auto text = seed;
        for (int edits = round % 4; edits > 0 && !text.empty(); --edits) {
          const auto at = below(text.size());
          const auto piece = pieces[below(std::size(pieces))];
          if (random() % 2)
            text.insert(at, piece);
          else if (random() % 2)
            text.replace(at, 1, piece);
          else
            text.erase(at, 1);
        }
        CAPTURE(text);
        REQUIRE(lm::properties::check_key(text) == nullptr);
        if (text.size() > 150)
          continue;
        const auto field = golden::key_field(text);
        const auto key = lm::canonical_key(field);
        const std::string_view all{reinterpret_cast<const char*>(field.data()), field.size()};
        REQUIRE(key == lm::canonical_key_slow(all));
        good += key ? 1 : 0;
      }
    CHECK(good > 10000);
  }

  TEST_CASE("random bytes never break a property of keys") {
    std::mt19937 random{99};
    const std::string_view alphabet = "@@@@%01f -m\xc3\xa9\t";
    for (int i = 0; i < 50000; ++i) {
      std::string text(random() % 40, ' ');
      for (auto& c : text)
        c = i % 2 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
      CAPTURE(text);
      REQUIRE(lm::properties::check_key(text) == nullptr);
    }
  }
}
