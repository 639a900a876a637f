#include "messages/lm_frame.hpp"

#include "fuzz/lm_properties.hpp"
#include "messages/lm_shape.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <climits>
#include <random>

using namespace kvasir;

namespace {

using client_bytes = lm::client_header_bytes;
using server_bytes = lm::server_header_bytes;

template <class Bytes>
void set_field(Bytes& bytes, size_t index, int32_t value) {
  std::memcpy(bytes.data() + index * sizeof(value), &value, sizeof(value));
}

client_bytes request(int32_t op, std::string_view key = "m@1@0@ff@half", int32_t length = 0) {
  client_bytes result{};
  const int32_t in[] = {op, length, 1, 2, 0, 0, 0, 0, 0};
  std::memcpy(result.data(), in, sizeof(in));
  const auto field = golden::key_field(key);
  std::copy(field.begin(), field.end(), result.begin() + sizeof(in));
  return result;
}

int32_t command_code(const std::string& name) {
  return golden::load("lm/tables.json")["commands"][name];
}

/// What a vector of client_frames or server_frames asks to encode, or nothing if a name in it
/// has no code.
std::optional<object_layout> layout_of(const nlohmann::json& x) {
  const auto format = lm::format_from_name(x["fmt"].get<std::string>());
  const auto dtype = lm::dtype_from_name(x["dtype"].get<std::string>());
  const auto shape = lm::pad_shape(x["shape"].get<std::vector<int32_t>>());
  if (!format || !dtype || !shape)
    return std::nullopt;
  return object_layout{*format, *dtype, *shape};
}

std::optional<int32_t> location_of(const nlohmann::json& x) {
  return x["location"].is_null() ? 0 : lm::location_from_name(x["location"].get<std::string>());
}

} // namespace

TEST_SUITE("lm frame") {
  TEST_CASE("every request that LMCache writes is written and read the same way") {
    size_t count = 0;
    for (const auto& x : golden::vectors("lm/client_frames.json")) {
      CAPTURE(x["name"]);
      const auto layout = layout_of(x);
      const auto location = location_of(x);
      const auto length = x["length"].get<int64_t>();
      const bool fits = layout && location && length <= INT_MAX;
      CHECK(x.contains("encode_error") == !fits);
      if (!fits)
        continue;
      const auto bytes = golden::array_from_hex<186>(x["hex"].get<std::string>());
      const auto code = command_code(x["command"]);
      const lm::client_header header{*lm::to_command(code), static_cast<int32_t>(length),
                                     *layout, *location, x["key"].get<std::string>()};
      const auto written = lm::encode_client_header(header);
      const auto read = lm::parse_client_header(bytes);
      ++count;
      if (length < 0) { // LMCache writes and takes it; for us the frame has no end
        CHECK_FALSE(written);
        CHECK(read.fault == lm::header_fault::negative_length);
        CHECK(read.framing_lost());
        continue;
      }
      REQUIRE(written);
      CHECK(*written == bytes);
      REQUIRE(read.good());
      CHECK(read.header.op == header.op);
      CHECK(read.header.length == length);
      CHECK(read.header.layout == *layout);
      CHECK(read.header.location == *location);
      CHECK(read.body_size() == (code == 1 ? length : 0));
      if (code <= 3)
        CHECK(read.header.key == x["decoded"]["key"].get<std::string>());
      CHECK(lm::dtype_name(read.header.layout.dtype)
            == x["decoded"]["dtype"].get<std::string>());
      // The server's answer to a GET of this PUT: everything echoed but the location.
      const auto reply = lm::encode_server_header(
        {lm::return_code::success, static_cast<int32_t>(length), *layout, 0});
      REQUIRE(reply);
      CHECK(*reply == golden::array_from_hex<36>(x["decoded_reply_hex"].get<std::string>()));
    }
    CHECK(count > 80);
  }

  TEST_CASE("every reply that LMCache writes is written and read the same way") {
    size_t count = 0;
    for (const auto& x : golden::vectors("lm/server_frames.json")) {
      CAPTURE(x["name"]);
      const auto layout = layout_of(x);
      const auto location = location_of(x);
      const bool fits = layout && location;
      CHECK(x.contains("error") == !fits);
      if (!fits)
        continue;
      const auto code
        = x["code"] == "SUCCESS" ? lm::return_code::success : lm::return_code::fail;
      const lm::server_header header{code, x["length"], *layout, *location};
      const auto bytes = golden::array_from_hex<36>(x["hex"].get<std::string>());
      const auto written = lm::encode_server_header(header);
      REQUIRE(written);
      CHECK(*written == bytes);
      const auto read = lm::parse_server_header(bytes);
      REQUIRE(read);
      CHECK(*read == header);
      ++count;
    }
    CHECK(count > 30);
  }

  TEST_CASE("the replies without a body are those that LMCache writes") {
    for (const auto& x : golden::vectors("lm/server_frames.json")) {
      if (x["name"] == "GET_miss" || x["name"] == "EXIST_miss")
        CHECK(lm::plain_reply(lm::return_code::fail)
              == golden::array_from_hex<36>(x["hex"].get<std::string>()));
      if (x["name"] == "EXIST_hit_or_HEALTH")
        CHECK(lm::plain_reply(lm::return_code::success)
              == golden::array_from_hex<36>(x["hex"].get<std::string>()));
    }
    CHECK(*lm::encode_server_header({}) == lm::plain_reply(lm::return_code::fail));
  }

  TEST_CASE("headers that kill lmcache_server's connection are told apart by what they cost") {
    for (const auto& x : golden::vectors("lm/malformed_client_headers.json")) {
      const auto name = x["name"].get<std::string>();
      CAPTURE(name);
      const auto read
        = lm::parse_client_header(golden::array_from_hex<186>(x["hex"].get<std::string>()));
      CHECK(read.good() == x.contains("ok"));
      if (read.good()) {
        CHECK(lm::dtype_name(read.header.layout.dtype) == x["ok"]["dtype"].get<std::string>());
        CHECK(read.header.layout.format == x["ok"]["fmt"].get<int32_t>());
        continue;
      }
      CHECK(read.framing_lost() == name.starts_with("command"));
      if (name.starts_with("fmt"))
        CHECK(read.fault == lm::header_fault::unknown_format);
      if (name.starts_with("dtype"))
        CHECK(read.fault == lm::header_fault::unknown_dtype);
      if (name.starts_with("location"))
        CHECK(read.fault == lm::header_fault::unknown_location);
    }
  }

  TEST_CASE("every recorded conversation splits into requests where lmcache_server split it") {
    size_t requests = 0;
    for (const auto& x : golden::vectors("lm/transcripts.json", "transcripts")) {
      const auto name = x["name"].get<std::string>();
      CAPTURE(name);
      const auto bytes = golden::from_hex(x["send_hex"].get<std::string>());
      std::span<const std::byte> rest{bytes};
      lm::header_fault fault = lm::header_fault::none;
      while (rest.size() >= lm::client_header_size) {
        const auto read = lm::parse_client_header(rest.first<lm::client_header_size>());
        rest = rest.subspan(lm::client_header_size);
        ++requests;
        if (read.fault != lm::header_fault::none)
          fault = read.fault;
        if (read.framing_lost())
          break;
        rest = rest.subspan(std::min<size_t>(rest.size(), read.body_size()));
      }
      using enum lm::header_fault;
      const std::map<std::string, lm::header_fault> expected{
        {"negative_length_put_then_get", negative_length},
        {"unknown_cmd_6", unknown_command},
        {"cmd_0", unknown_command},
        {"bad_fmt_9", unknown_format},
        {"bad_dtype_9", unknown_dtype},
        {"bad_location_3", unknown_location},
        {"nul_padded_key", bad_key}}; // bad_key ("nokey") is a raw key here
      const auto found = expected.find(name);
      CHECK(fault == (found == expected.end() ? none : found->second));
      if (found == expected.end())
        CHECK(rest.size() == (name == "header_100_bytes_FIN" ? 100 : 0));
    }
    CHECK(requests > 60);
  }

  TEST_CASE("each field of a request is refused outside its range, one at a time") {
    using enum lm::header_fault;
    struct {
      size_t field;
      int32_t value;
      lm::header_fault fault;
    } const cases[] = {
      {0, INT_MIN, unknown_command},
      {0, -1, unknown_command},
      {0, 0, unknown_command},
      {0, 1, none},
      {0, 5, none},
      {0, 6, unknown_command},
      {0, 256, unknown_command},
      {0, INT_MAX, unknown_command},
      {1, INT_MIN, negative_length},
      {1, -1, negative_length},
      {1, 0, none},
      {1, INT_MAX, none},
      {2, INT_MIN, unknown_format},
      {2, -1, unknown_format},
      {2, 0, none},
      {2, 8, none},
      {2, 9, unknown_format},
      {2, INT_MAX, unknown_format},
      {3, INT_MIN, unknown_dtype},
      {3, -1, unknown_dtype},
      {3, 0, none},
      {3, 8, none},
      {3, 9, unknown_dtype},
      {3, INT_MAX, unknown_dtype},
      {4, INT_MIN, unknown_location},
      {4, -1, unknown_location},
      {4, 2, none},
      {4, 3, unknown_location},
      {4, INT_MAX, unknown_location},
      {5, INT_MIN, none},
      {6, -1, none},
      {7, 0, none},
      {8, INT_MAX, none},
    };
    for (const auto& x : cases) {
      CAPTURE(x.field);
      CAPTURE(x.value);
      auto bytes = request(1, "m@1@0@ff@half", 7);
      set_field(bytes, x.field, x.value);
      const auto read = lm::parse_client_header(bytes);
      CHECK(read.fault == x.fault);
      CHECK(lm::properties::check_client_header(bytes) == nullptr);
      if (!read.good() && !read.framing_lost()) { // enough is known to drain it
        CHECK(read.header.op == lm::command::put);
        CHECK(read.body_size() == 7);
      }
    }
  }

  TEST_CASE("a bad key leaves command and length known and says what is wrong with it") {
    const auto read = lm::parse_client_header(request(1, std::string_view{"m@\0", 3}, 1000));
    CHECK(read.fault == lm::header_fault::bad_key);
    CHECK(read.key_problem == lm::key_fault::control_character);
    CHECK_FALSE(read.framing_lost());
    CHECK(read.body_size() == 1000);
    CHECK(lm::parse_client_header(request(2, "")).key_problem == lm::key_fault::empty);
    CHECK(lm::parse_client_header(request(3, "\xff")).key_problem
          == lm::key_fault::invalid_utf8);
  }

  TEST_CASE("only a PUT's length means anything") {
    for (int32_t op : {2, 3, 4, 5})
      for (int32_t length : {INT_MIN, -1, 999, INT_MAX}) {
        const auto read = lm::parse_client_header(request(op, "m@1@0@ff@half", length));
        CHECK(read.good());
        CHECK(read.body_size() == 0);
      }
  }

  TEST_CASE("LIST and HEALTH name no object, whatever their key field holds") {
    for (int32_t op : {4, 5}) {
      auto bytes = request(op, "");
      std::fill(bytes.begin() + 36, bytes.end(), std::byte{0xff});
      const auto read = lm::parse_client_header(bytes);
      CHECK(read.good());
      CHECK(read.header.key.empty());
    }
  }

  TEST_CASE("a request that the protocol cannot say is an error, not wrong bytes") {
    const lm::client_header good{lm::command::put, 4, {1, 2, {2, 1, 1, 1}}, 0, "m@1@0@ff@half"};
    REQUIRE(lm::encode_client_header(good));
    auto refused = [&](auto change) {
      auto header = good;
      change(header);
      const auto written = lm::encode_client_header(header);
      return !written && written.error() == errc::invalid_argument;
    };
    CHECK(refused([](auto& x) { x.op = static_cast<lm::command>(6); }));
    CHECK(refused([](auto& x) { x.length = -1; }));
    CHECK(refused([](auto& x) { x.layout.format = 9; }));
    CHECK(refused([](auto& x) { x.layout.dtype = 9; }));
    CHECK(refused([](auto& x) { x.location = 3; }));
    CHECK(refused([](auto& x) { x.key.clear(); }));
    CHECK(refused([](auto& x) { x.key.assign(151, 'k'); }));
    CHECK(refused([](auto& x) {
      x.key = "m\n"
              "m@1@0@ff@half";
    }));
    CHECK(refused([](auto& x) { x.op = lm::command::list, x.key.assign(151, 'k'); }));
    CHECK_FALSE(refused([](auto& x) { x.key.assign(150, 'k'); }));
    CHECK_FALSE(refused([](auto& x) { x.op = lm::command::health, x.key.clear(); }));
  }

  TEST_CASE("dtype 1 is never written") {
    const auto request_bytes
      = lm::encode_client_header({lm::command::get, 0, {1, 1, {}}, 0, "m@1@0@ff@half"});
    REQUIRE(request_bytes);
    CHECK(*request_bytes == request(2));
    CHECK(*lm::encode_server_header({lm::return_code::fail, 0, {1, 1, {}}, 0})
          == lm::plain_reply(lm::return_code::fail));
  }

  TEST_CASE("each field of a reply is refused outside its range, in both directions") {
    struct {
      size_t field;
      int32_t value;
    } const cases[] = {{0, 0}, {0, 199}, {0, 401}, {0, INT_MIN}, {1, -1}, {1, INT_MIN}, {2, -1},
                       {2, 9}, {3, -1},  {3, 9},   {8, -1},      {8, 3},  {8, INT_MAX}};
    for (const auto& x : cases) {
      CAPTURE(x.field);
      CAPTURE(x.value);
      auto bytes = lm::plain_reply(lm::return_code::success);
      set_field(bytes, x.field, x.value);
      const auto read = lm::parse_server_header(bytes);
      REQUIRE_FALSE(read);
      CHECK(read.error() == errc::malformed_frame);
      lm::server_header header;
      if (x.field == 0)
        header.code = static_cast<lm::return_code>(x.value);
      if (x.field == 1)
        header.length = x.value;
      if (x.field == 2)
        header.layout.format = x.value;
      if (x.field == 3)
        header.layout.dtype = x.value;
      if (x.field == 8)
        header.location = x.value;
      const auto written = lm::encode_server_header(header);
      REQUIRE_FALSE(written);
      CHECK(written.error() == errc::invalid_argument);
    }
    auto bytes = lm::plain_reply(lm::return_code::success);
    set_field(bytes, 1, INT_MAX);
    set_field(bytes, 4, INT_MIN);
    CHECK(lm::parse_server_header(bytes));
  }

  TEST_CASE("every fault has the name it is counted under") {
    using enum lm::header_fault;
    CHECK(lm::to_string(none) == "none");
    CHECK(lm::to_string(unknown_command) == "unknown_command");
    CHECK(lm::to_string(negative_length) == "negative_length");
    CHECK(lm::to_string(unknown_format) == "unknown_format");
    CHECK(lm::to_string(unknown_dtype) == "unknown_dtype");
    CHECK(lm::to_string(unknown_location) == "unknown_location");
    CHECK(lm::to_string(bad_key) == "bad_key");
    CHECK(lm::to_string(static_cast<lm::header_fault>(200)) == "unknown");
  }

  TEST_CASE("random bytes never break a property of the headers") {
    std::mt19937 random{20240607};
    auto byte = [&] {
      return static_cast<std::byte>(random());
    };
    for (int i = 0; i < 20000; ++i) {
      client_bytes client;
      std::generate(client.begin(), client.end(), byte);
      REQUIRE(lm::properties::check_client_header(client) == nullptr);
      // Mostly plausible numbers, so that the key is reached.
      for (size_t field = 0; field < 5; ++field)
        set_field(client, field, static_cast<int32_t>(random() % 6));
      REQUIRE(lm::properties::check_client_header(client) == nullptr);
      server_bytes server;
      std::generate(server.begin(), server.end(), byte);
      set_field(server, 0, random() % 2 ? 200 : 400);
      for (size_t field : {2u, 3u, 8u})
        set_field(server, field, static_cast<int32_t>(random() % 4));
      REQUIRE(lm::properties::check_server_header(server) == nullptr);
      REQUIRE(lm::properties::check_frame(std::span{client}.first(random() % 187)) == nullptr);
    }
  }
}
