#include "fuzz/mp_properties.hpp"
#include "messages/mp_reply.hpp"
#include "support/mp_encode.hpp"
#include "wire/corpus.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

using namespace kvasir;
using namespace kvasir::mp;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span{text});
}

caf::expected<request> parse(operation what, const std::vector<std::string>& arguments) {
  std::vector<std::span<const std::byte>> frames;
  for (auto& text : arguments)
    frames.push_back(bytes_of(text));
  return parse_request(what, frames);
}

std::string unhex(const std::string& digits) {
  auto bytes = golden::from_hex(digits);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
std::string msgpack_of(const T& value) {
  return test::packed([&](auto& to) { to.pack(value); });
}

cache_key sample_key() {
  cache_key key;
  key.model_name = "org/model";
  key.world_size = 2;
  key.worker_id = 1;
  key.token_ids = {0, 127, 128, 65535, 65536, 4294967295};
  key.end = 6;
  key.request_id = "r1";
  key.cache_salt = "tenant";
  key.num_kv_readers = 3;
  return key;
}

/// A key with one field replaced, or left out if `value` is empty.
std::string key_with(std::string_view name, const std::string& value) {
  auto key = sample_key();
  return test::packed([&](auto& to) {
    struct field {
      std::string_view name;
      std::string value;
    };
    std::vector<field> fields{{"model_name", msgpack_of(key.model_name)},
                              {"world_size", msgpack_of(key.world_size)},
                              {"worker_id", msgpack_of(*key.worker_id)},
                              {"token_ids", msgpack_of(key.token_ids)},
                              {"start", msgpack_of(key.start)},
                              {"end", msgpack_of(key.end)},
                              {"request_id", msgpack_of(key.request_id)},
                              {"cache_salt", msgpack_of(key.cache_salt)},
                              {"num_kv_readers", msgpack_of(key.num_kv_readers)}};
    std::erase_if(fields, [&](auto& f) { return f.name == name && value.empty(); });
    to.pack_map(static_cast<uint32_t>(fields.size()));
    for (auto& f : fields) {
      test::pack_text(to, f.name);
      auto& text = f.name == name ? value : f.value;
      to.pack_bin_body(text.data(), static_cast<uint32_t>(text.size()));
    }
  });
}

caf::error error_of_key(std::string_view name, const std::string& value) {
  auto parsed = parse_cache_key(bytes_of(key_with(name, value)));
  return parsed ? caf::error{} : parsed.error();
}

} // namespace

TEST_SUITE_BEGIN("mp protocol");

TEST_CASE("every request of the recorded conversations parses to what was recorded") {
  size_t keys = 0;
  for (auto name : {"conversation_shm_chunk16.json", "conversation_pickle_chunk16.json"}) {
    auto messages = golden::vectors(std::string{"mp/"} + name, "messages");
    // Of those that LMCache's server never answered the recording does not say what they mean.
    auto answered = [&](const nlohmann::json& request) {
      return std::any_of(messages.begin(), messages.end(), [&](auto& message) {
        return message.value("dir", "") == "S->C" && message["peer"] == request["peer"]
               && message["frames"][0]["hex"] == request["frames"][0]["hex"];
      });
    };
    for (auto& message : messages) {
      if (message.value("dir", "") != "C->S" || message["frames"].size() < 2
          || !answered(message))
        continue;
      std::vector<std::string> frames;
      for (auto& frame : message["frames"])
        frames.push_back(unhex(frame["hex"].get<std::string>()));
      if (frames[1].empty())
        continue; // Flow control of the event stream.
      CAPTURE(message["op"].get<std::string>());
      auto what = parse_operation(bytes_of(frames[1]));
      REQUIRE(what);
      CHECK(to_string(*what) == message["op"].get<std::string>());
      auto parsed = parse(*what, {frames.begin() + 2, frames.end()});
      REQUIRE(parsed);
      std::visit(
        [&](auto& request) {
          if constexpr (requires { request.key; }) {
            ++keys;
            CHECK(properties::check_same_key(request.key) == nullptr);
            // As LMCache's clients write it: nothing was lost or changed.
            if (frames[2].starts_with("\x8a\xaamodel_name"))
              CHECK(test::encode_key(request.key) == frames[2]);
          }
        },
        *parsed);
    }
  }
  CHECK(keys > 50);
}

TEST_CASE("results are written byte for byte as recorded") {
  CHECK(encode_uint(256) == unhex("cd0100"));
  CHECK(encode_uint(16) == unhex("10"));
  CHECK(encode_bool(true) == unhex("c3"));
  CHECK(encode_bool(false) == unhex("c2"));
  CHECK(encode_text("OK") == unhex("a24f4b"));
  CHECK(encode_texts({}) == unhex("90"));
  std::vector<std::string> recorded;
  for (auto name : {"conversation_shm_chunk16.json", "conversation_pickle_chunk16.json"})
    for (auto& message : golden::vectors(std::string{"mp/"} + name, "messages"))
      if (message.value("dir", "") == "S->C" && message["frames"].size() == 3)
        recorded.push_back(unhex(message["frames"][2]["hex"].get<std::string>()));
  auto was_recorded = [&](const std::string& frame) {
    return std::find(recorded.begin(), recorded.end(), frame) != recorded.end();
  };
  CHECK(was_recorded(encode_no_buffers()));
  CHECK(was_recorded(encode_retrieve_failed()));
  CHECK(was_recorded(encode_registration("", 0)));
  CHECK(was_recorded(encode_store_slots({}, {}, {})));
}

TEST_CASE("slots are written as recorded, with their own offsets") {
  auto layout = make_kv_layout({tensor_dtype::float16, false, 2, 16, 16, 16});
  REQUIRE(layout);
  for (auto& message : golden::vectors("mp/conversation_shm_chunk16.json", "messages")) {
    if (message.value("dir", "") != "S->C" || message["frames"].size() != 3)
      continue;
    auto& decoded = message["frames"][2]["decoded"];
    if (!decoded.is_object() || !decoded.contains("context")
        || !decoded["context"].contains("slots") || decoded["context"]["slots"].empty())
      continue;
    std::vector<slot> slots;
    for (auto& each : decoded["context"]["slots"])
      slots.push_back({each["offset"], each["length"], 0});
    auto frame = unhex(message["frames"][2]["hex"].get<std::string>());
    if (decoded.contains("success"))
      CHECK(encode_retrieve_slots(slots, *layout) == frame);
    else
      CHECK(encode_store_slots(
              slots, decoded["context"]["chunk_indices"].get<std::vector<uint32_t>>(), *layout)
            == frame);
  }
}

TEST_CASE("an operation is taken by number and by name") {
  for (auto number : {1, 2, 8, 14, 19, 22, 24, 33}) {
    auto by_number = parse_operation(bytes_of(msgpack_of(number)));
    REQUIRE(by_number);
    auto by_name = parse_operation(bytes_of(msgpack_of(std::string{to_string(*by_number)})));
    REQUIRE(by_name);
    CHECK(*by_name == *by_number);
  }
  CHECK(parse_operation(bytes_of(msgpack_of(std::string{"subscribe_kv_events"}))));
  for (auto number : {0, 11, 34, 100, 250, -1})
    CHECK(parse_operation(bytes_of(msgpack_of(number))).error() == errc::not_found);
  CHECK(parse_operation(bytes_of(msgpack_of(std::string{"nosuch"}))).error()
        == errc::not_found);
  for (auto& bad : {std::string{}, unhex("c1"), unhex("c0"), unhex("1616")})
    CHECK(parse_operation(bytes_of(bad)).error() == errc::malformed_frame);
  CHECK(parse_operation(bytes_of(std::string(5000, '\x91'))).error() == errc::malformed_frame);
}

TEST_CASE("a key keeps its meaning in any order, with unknown fields, the last of two counts") {
  auto key = sample_key();
  auto text = test::packed([&](auto& to) {
    to.pack_map(9);
    test::pack_text(to, "num_kv_readers");
    to.pack(3);
    test::pack_text(to, "zzz");
    to.pack(std::vector<std::vector<int>>{{1}, {2}});
    test::pack_text(to, "end");
    to.pack(5);
    test::pack_text(to, "end");
    to.pack(6);
    test::pack_text(to, "start");
    to.pack(0);
    test::pack_text(to, "token_ids");
    to.pack(key.token_ids);
    test::pack_text(to, "request_id");
    to.pack(std::string{"r1"});
    test::pack_text(to, "world_size");
    to.pack(2);
    test::pack_text(to, "model_name");
    to.pack(std::string{"org/model"});
  });
  auto parsed = parse_cache_key(bytes_of(text));
  REQUIRE(parsed);
  key.worker_id.reset();
  key.cache_salt.clear();
  CHECK(*parsed == key);
}

TEST_CASE("each field of a key has its range") {
  CHECK_FALSE(error_of_key("nothing", ""));
  for (auto name : {"model_name", "world_size", "token_ids", "start", "end", "request_id"}) {
    CAPTURE(name);
    CHECK(error_of_key(name, "") == errc::invalid_argument);
    CHECK(error_of_key(name, unhex("c0")) == errc::invalid_argument);
    CHECK(error_of_key(name, unhex("c3")) == errc::invalid_argument);
    CHECK(error_of_key(name, unhex("cb3ff0000000000000")) == errc::invalid_argument);
  }
  for (auto name : {"worker_id", "cache_salt", "num_kv_readers"})
    CHECK_FALSE(error_of_key(name, ""));
  CHECK_FALSE(error_of_key("worker_id", unhex("c0")));
  for (auto& [name, good, bad] :
       std::vector<std::tuple<const char*, int64_t, int64_t>>{{"world_size", 2, 0},
                                                              {"world_size", 255, 256},
                                                              {"worker_id", 0, -1},
                                                              {"worker_id", 1, 2},
                                                              {"num_kv_readers", 0, -1},
                                                              {"num_kv_readers", 128, 129},
                                                              {"start", INT64_MAX, -1},
                                                              {"end", 0, -1}}) {
    CAPTURE(name);
    CHECK_FALSE(error_of_key(name, msgpack_of(good)));
    CHECK(error_of_key(name, msgpack_of(bad)) == errc::invalid_argument);
  }
  auto text = [](const std::string& value) {
    return msgpack_of(value);
  };
  CHECK(error_of_key("model_name", text("")) == errc::invalid_argument);
  CHECK(error_of_key("model_name", text("m@v2")) == errc::invalid_argument);
  CHECK_FALSE(error_of_key("model_name", text(std::string(1024, 'm'))));
  CHECK(error_of_key("model_name", text(std::string(1025, 'm'))) == errc::invalid_argument);
  CHECK_FALSE(error_of_key("request_id", text(std::string(4096, 'r'))));
  CHECK(error_of_key("request_id", text(std::string(4097, 'r'))) == errc::invalid_argument);
  CHECK_FALSE(error_of_key("cache_salt", text(std::string(128, 's'))));
  CHECK(error_of_key("cache_salt", text(std::string(129, 's'))) == errc::invalid_argument);
  for (auto bad : {"a@b", "a/b", "a\\b"})
    CHECK(error_of_key("cache_salt", text(bad)) == errc::invalid_argument);
  CHECK(error_of_key("cache_salt", text(std::string(1, '\0'))) == errc::invalid_argument);
}

TEST_CASE("token ids are whole numbers of 32 bits") {
  // Signed and wide forms of numbers that fit are numbers that fit.
  auto forms = parse_cache_key(
    bytes_of(key_with("token_ids", unhex("95d007d10007d200000007d30000000000000007"
                                         "cf0000000000000007"))));
  REQUIRE(forms);
  CHECK(forms->token_ids == std::vector<uint32_t>(5, 7));
  CHECK_FALSE(error_of_key("token_ids", unhex("90")));
  for (auto bad : {"91ff", "91cf0000000100000000", "91d3ffffffffffffffff", "91c3", "91c0",
                   "9190", "91a161", "9180", "91cb0000000000000000", "80", "c4021234"}) {
    CAPTURE(bad);
    CHECK(error_of_key("token_ids", unhex(bad)) == errc::invalid_argument);
  }
}

TEST_CASE("a frame that is cut anywhere, or goes on, is malformed") {
  auto whole = test::encode_key(sample_key());
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK(parse_cache_key(bytes_of(whole.substr(0, size))).error() == errc::malformed_frame);
  CHECK(parse_cache_key(bytes_of(whole + '\0')).error() == errc::malformed_frame);
  // A header that promises more elements than the frame has bytes takes no memory for them.
  for (auto bad : {"ddffffffff", "dfffffffff", "dc ffff"}) {
    std::string digits{bad};
    std::erase(digits, ' ');
    CHECK(parse_cache_key(bytes_of(unhex(digits))).error() == errc::malformed_frame);
  }
  CHECK(parse_cache_key(bytes_of(std::string(5000, '\x81'))).error() == errc::malformed_frame);
}

TEST_CASE("an operation has an exact number of arguments") {
  auto key = test::encode_key(sample_key());
  auto number = msgpack_of(7);
  struct form {
    operation what;
    std::vector<std::string> arguments;
  };
  for (auto& [what, arguments] : std::vector<form>{
         {operation::get_chunk_size, {}},
         {operation::get_experimental, {}},
         {operation::noop, {}},
         {operation::ping, {number}},
         {operation::clear, {number}},
         {operation::lookup, {key, number}},
         {operation::free_lookup_locks, {key, number}},
         {operation::query_prefetch_status, {msgpack_of(std::string{"r"})}},
         {operation::wait_prefetch_status, {msgpack_of(std::string{"r"}), msgpack_of(0.5)}},
         {operation::end_session, {msgpack_of(std::string{"r"})}},
         {operation::report_block_allocation,
          {number, msgpack_of(std::string{"m"}), unhex("9181a161c0")}},
         {operation::unregister_kv_cache_engine_driven_context, {number}},
         {operation::prepare_store, {key, number}},
         {operation::commit_store, {key, number, unhex("c400")}},
         {operation::prepare_retrieve, {key, number}},
         {operation::commit_retrieve, {key, number}}}) {
    CAPTURE(to_string(what));
    CHECK(parse(what, arguments));
    auto more = arguments;
    more.push_back(number);
    CHECK(parse(what, more).error() == errc::malformed_frame);
    if (!arguments.empty()) {
      CHECK(parse(what, {arguments.begin(), arguments.end() - 1}).error()
            == errc::malformed_frame);
      auto garbage = arguments;
      garbage.front() = unhex("c1");
      CHECK(parse(what, garbage).error() == errc::malformed_frame);
    }
  }
  for (auto what : {operation::store, operation::retrieve, operation::register_kv_cache,
                    operation::p2p_lookup_and_lock, operation::server_module_call})
    CHECK(parse(what, {}).error() == errc::not_found);
}

TEST_CASE("plain numbers and truths are taken as Python would") {
  auto force = [](const char* hex) {
    auto parsed = parse(operation::clear, {unhex(hex)});
    REQUIRE(parsed);
    return std::get<clear_request>(*parsed).force;
  };
  CHECK(force("c3"));
  CHECK(force("01"));
  CHECK(force("a178"));
  CHECK_FALSE(force("c2"));
  CHECK_FALSE(force("c0"));
  CHECK_FALSE(force("a0"));
  auto instance = [](const char* hex) {
    return std::get<ping_request>(*parse(operation::ping, {unhex(hex)})).instance;
  };
  CHECK_FALSE(instance("c0"));
  CHECK(instance("cf7fffffffffffffff") == 0x7fffffffffffffff);
  CHECK(instance("cfffffffffffffffff") == 0xffffffffffffffff);
  CHECK(instance("d3ffffffffffffffff") == 0xffffffffffffffff);
  CHECK(parse(operation::ping, {unhex("a131")}).error() == errc::invalid_argument);
  CHECK(
    parse(operation::wait_prefetch_status,
          {msgpack_of(std::string{"r"}), msgpack_of(std::numeric_limits<double>::infinity())})
      .error()
    == errc::invalid_argument);
}

TEST_CASE("a registration says what its chunks look like") {
  register_request wanted{5, "m", 1, 16, 32, 1024, "bfloat16", false, std::nullopt};
  auto parse_registration = [](const register_request& request) {
    return parse(operation::register_kv_cache_engine_driven_context,
                 {test::encode_registration_argument(request)});
  };
  auto parsed = parse_registration(wanted);
  REQUIRE(parsed);
  CHECK(std::get<register_request>(*parsed) == wanted);
  auto layout = wanted.layout(256);
  REQUIRE(layout);
  CHECK(layout->chunk_bytes() == 32ull << 20);
  wanted.single_plane = true;
  wanted.num_physical_slots = 64;
  CHECK(wanted.layout(256)->chunk_bytes() == 32 * 64 * 1024 * 2);
  wanted.dtype = "float99";
  CHECK(wanted.layout(256).error() == errc::invalid_argument);
  for (auto break_it : std::vector<void (*)(register_request&)>{
         [](register_request& r) { r.model_name.clear(); },
         [](register_request& r) { r.model_name = "a@b"; },
         [](register_request& r) { r.world_size = 0; },
         [](register_request& r) { r.world_size = 256; },
         [](register_request& r) { r.block_size = 0; },
         [](register_request& r) { r.num_layers = 0; },
         [](register_request& r) { r.hidden_dim_size = 0; },
         [](register_request& r) {
           r.num_physical_slots = 0;
         }}) {
    register_request bad{5, "m", 1, 16, 32, 1024, "bfloat16", false, std::nullopt};
    break_it(bad);
    CHECK(parse_registration(bad).error() == errc::invalid_argument);
  }
  register_request huge{5, "m", 1, 16, UINT32_MAX, UINT32_MAX, "float64", false, UINT32_MAX};
  CHECK(huge.layout(256).error() == errc::too_large);
}

TEST_CASE("the fuzzer's corpus of requests keeps its promises") {
  CHECK(corpus::replay("mp_request",
                       [](const std::string& text) {
                         return properties::check_request(std::as_bytes(std::span{text}));
                       })
        > 30);
}

TEST_SUITE_END();
