#include "messages/mp_key.hpp"

#include "wire/golden.hpp"
#include "wire/mp_wire.hpp"

#include <doctest/doctest.h>

#include <utility>

using namespace kvasir;

namespace {

using mp::wire::text_frame;
using mp::wire::uint_frame;

std::string bytes(std::string_view hex) {
  const auto result = golden::from_hex(hex);
  return {reinterpret_cast<const char*>(result.data()), result.size()};
}

/// A map with these fields; values are msgpack already.
using fields = std::vector<std::pair<std::string, std::string>>;

std::string map_frame(const fields& all) {
  std::string result = bytes("de");
  result += static_cast<char>(all.size() >> 8);
  result += static_cast<char>(all.size());
  for (const auto& [name, value] : all)
    result += text_frame(name) + value;
  return result;
}

const fields whole{{"model_name", text_frame("m")},  {"world_size", uint_frame(2)},
                   {"worker_id", uint_frame(1)},     {"token_ids", bytes("93017fce00010000")},
                   {"start", uint_frame(0)},         {"end", uint_frame(2)},
                   {"request_id", text_frame("r")},  {"cache_salt", text_frame("s")},
                   {"request_configs", bytes("c0")}, {"num_kv_readers", uint_frame(1)}};

fields with(std::string_view name, std::string value) {
  auto result = whole;
  for (auto& field : result)
    if (field.first == name)
      field.second = std::move(value);
  return result;
}

fields without(std::string_view name) {
  auto result = whole;
  std::erase_if(result, [&](auto& field) { return field.first == name; });
  return result;
}

caf::expected<mp::cache_key> parse(std::string_view frame) {
  return mp::parse_cache_key(golden::as_bytes(frame));
}

caf::expected<mp::cache_key> parse(const fields& all) {
  return parse(map_frame(all));
}

} // namespace

TEST_SUITE("mp key") {
  TEST_CASE("a key is read by the names of its fields") {
    const mp::cache_key expected{"m", 2, 1, {1, 127, 65536}, 0, 2, "r", "s", 1};
    const auto key = parse(whole);
    REQUIRE(key);
    CHECK(*key == expected);
    CHECK(parse(fields{whole.rbegin(), whole.rend()}) == expected);
    CHECK(parse(mp::wire::key_frame(expected)) == expected);
  }

  TEST_CASE("unknown fields are skipped, whatever they hold") {
    for (const std::string value : {"c0", "cb7ff8000000000000", "83a16101a26262c20102",
                                    "9291c0a0", "c403010203", "d40100", "9181a1619191c3"}) {
      CAPTURE(value);
      auto more = whole;
      more.insert(more.begin(), {"unknown", bytes(value)});
      more.insert(more.begin() + 5, {"other", bytes(value)});
      CHECK(parse(more) == parse(whole));
      CHECK(parse(with("request_configs", bytes(value))) == parse(whole));
    }
  }

  TEST_CASE("of equal names the last one counts") {
    auto twice = whole;
    twice.insert(twice.begin(), {"end", uint_frame(77)});
    twice.insert(twice.begin(), {"token_ids", bytes("a178")});
    CHECK(parse(twice) == parse(whole));
    twice.push_back({"end", uint_frame(9)});
    const auto key = parse(twice);
    REQUIRE(key);
    CHECK(key->end == 9);
    twice.push_back({"end", text_frame("nine")});
    CHECK_FALSE(parse(twice));
  }

  TEST_CASE("only fields with a default may be missing") {
    for (const auto& field : whole) {
      const auto& name = field.first;
      CAPTURE(name);
      const bool optional = name == "worker_id" || name == "cache_salt"
                            || name == "request_configs" || name == "num_kv_readers";
      const auto key = parse(without(name));
      CHECK(static_cast<bool>(key) == optional);
      if (!key)
        CHECK(key.error() == errc::invalid_argument);
    }
    const auto key = parse(without("worker_id"));
    REQUIRE(key);
    CHECK(key->worker_id == std::nullopt);
    CHECK(parse(without("cache_salt"))->cache_salt.empty());
    CHECK(parse(without("num_kv_readers"))->num_kv_readers == 0);
  }

  TEST_CASE("a number is taken within its range and not past it") {
    struct range {
      const char* name;
      uint64_t lowest;
      uint64_t highest;
    };
    for (const auto& number :
         {range{"world_size", 2, 255}, {"worker_id", 0, 1}, {"num_kv_readers", 0, 128}}) {
      const std::string name = number.name;
      CAPTURE(name);
      CHECK(parse(with(name, uint_frame(number.lowest))));
      CHECK(parse(with(name, uint_frame(number.highest))));
      CHECK_FALSE(parse(with(name, uint_frame(number.highest + 1))));
      for (const std::string wrong : {"ff", "d1ffff", "cfffffffffffffffff", "c3", "a131", "90",
                                      "80", "cb3ff0000000000000"})
        CHECK_FALSE(parse(with(name, bytes(wrong))));
    }
    auto alone = with("world_size", uint_frame(1));
    CHECK_FALSE(parse(alone)); // worker 1 of 1
    CHECK_FALSE(parse(with("world_size", uint_frame(0))));
    CHECK_FALSE(parse(with("world_size", bytes("c0"))));
    for (const std::string name : {"start", "end"}) {
      CAPTURE(name);
      CHECK(parse(with(name, bytes("cfffffffffffffffff"))));
      CHECK(parse(with(name, bytes("d005")))); // a signed form of a positive number
      CHECK_FALSE(parse(with(name, bytes("ff"))));
      CHECK_FALSE(parse(with(name, bytes("c2"))));
      CHECK_FALSE(parse(with(name, bytes("cb3ff0000000000000"))));
    }
  }

  TEST_CASE("tokens may have any form of a number below 2^32") {
    const auto key = parse(with("token_ids", bytes("9a"
                                                   "00"
                                                   "7f"
                                                   "cc80"
                                                   "cdffff"
                                                   "ceffffffff"
                                                   "cf00000000ffffffff"
                                                   "d07f"
                                                   "d17fff"
                                                   "d27fffffff"
                                                   "d300000000ffffffff")));
    REQUIRE(key);
    const uint32_t most = 0xffffffff;
    CHECK(
      key->token_ids
      == std::vector<uint32_t>{0, 127, 128, 65535, most, most, 127, 32767, 0x7fffffff, most});
    CHECK(parse(with("token_ids", bytes("90")))->token_ids.empty());
    for (const std::string wrong :
         {"91cf0000000100000000", "91ff", "91d3ffffffffffffffff", "91c0", "91c3", "91a131",
          "9191c0", "9180", "91c40100", "91d40100", "92cf000000010000000001",
          "91cb3ff0000000000000", "c0", "05", "80", "a0", "c400"}) {
      CAPTURE(wrong);
      CHECK_FALSE(parse(with("token_ids", bytes(wrong))));
    }
  }

  TEST_CASE("texts are bounded and keep out what would divide a key") {
    auto text = [](const char* name, size_t size) {
      return parse(with(name, text_frame(std::string(size, 'x'))));
    };
    CHECK(text("model_name", 1024));
    CHECK_FALSE(text("model_name", 1025));
    CHECK_FALSE(text("model_name", 0));
    CHECK(text("request_id", 0));
    CHECK(text("request_id", 4096));
    CHECK_FALSE(text("request_id", 4097));
    CHECK(text("cache_salt", 0));
    CHECK(text("cache_salt", 128));
    CHECK_FALSE(text("cache_salt", 129));
    CHECK_FALSE(parse(with("model_name", text_frame("a@b"))));
    for (char c : {'@', '/', '\\', '\0'})
      CHECK_FALSE(parse(with("cache_salt", text_frame(std::string{'a', c, 'b'}))));
    for (const std::string name : {"model_name", "request_id", "cache_salt"})
      for (const std::string wrong : {"c0", "01", "c40161", "91a161", "c3"})
        CHECK_FALSE(parse(with(name, bytes(wrong))));
  }

  TEST_CASE("what becomes a name is UTF-8") {
    for (const std::string name : {"model_name", "request_id", "cache_salt"}) {
      CAPTURE(name);
      for (const std::string good : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x7f"})
        CHECK(parse(with(name, text_frame(good))));
      // A stray byte, a cut sequence, an overlong form, a surrogate, beyond U+10FFFF.
      for (const std::string bad : {"\xff", "a\x80", "\xc3", "\xe2\x82", "\xc0\x80",
                                    "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
        CAPTURE(bad);
        const auto key = parse(with(name, text_frame(bad)));
        REQUIRE_FALSE(key);
        CHECK(key.error() == errc::invalid_argument);
      }
    }
  }

  TEST_CASE("a cut key is refused at every byte, and so is one with bytes behind it") {
    const auto frame = map_frame(whole);
    for (size_t size = 0; size < frame.size(); ++size) {
      CAPTURE(size);
      const auto key = parse(frame.substr(0, size));
      REQUIRE_FALSE(key);
      CHECK(key.error() == errc::malformed_frame);
    }
    for (const std::string more : {"00", "c0", "c1"})
      CHECK(parse(frame + bytes(more)).error() == errc::malformed_frame);
  }

  TEST_CASE("a key is a map of texts") {
    for (const std::string wrong : {"", "c0", "c1", "01", "90", "a161", "c400", "8101c0",
                                    "81c0c0", "8191c0c0", "81c40161c0"}) {
      CAPTURE(wrong);
      CHECK(parse(bytes(wrong)).error() == errc::malformed_frame);
    }
  }

  TEST_CASE("a header that promises more than there is takes no memory") {
    for (const std::string array : {"ddffffffff", "dc ffff", "dfffffffff", "deffff",
                                    "c6ffffffff", "dbffffffff", "c9ffffffff01"}) {
      auto hex = std::string{array};
      std::erase(hex, ' ');
      CAPTURE(hex);
      CHECK(parse(bytes(hex)).error() == errc::malformed_frame);
      CHECK(parse(with("token_ids", bytes(hex))).error() == errc::malformed_frame);
      CHECK(parse(with("request_configs", bytes(hex))).error() == errc::malformed_frame);
    }
  }

  TEST_CASE("a key may have more fields than are known, but not any number") {
    auto more = whole;
    while (more.size() < 64)
      more.insert(more.begin(), {"", bytes("c0")});
    CHECK(parse(more) == parse(whole));
    more.insert(more.begin(), {"", bytes("c0")});
    CHECK(parse(more).error() == errc::malformed_frame);
  }

  TEST_CASE("what is skipped may be nested, but not without end") {
    auto nested = [](size_t depth) {
      return parse(with("request_configs", std::string(depth, '\x91') + "\xc0"));
    };
    CHECK(nested(30));
    CHECK_FALSE(nested(40));
    CHECK_FALSE(nested(100'000));
    CHECK_FALSE(parse(with("request_configs", std::string(50'000, '\x81'))));
  }
}
