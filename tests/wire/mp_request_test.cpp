#include "fuzz/mp_request_properties.hpp"
#include "wire/corpus.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace kvasir;

namespace {

using mp::operation;
using mp::wire::text_frame;
using mp::wire::uint_frame;

std::string bytes(std::string_view hex) {
  const auto result = golden::from_hex(hex);
  return {reinterpret_cast<const char*>(result.data()), result.size()};
}

const mp::cache_key key{"m", 1, 0, {1, 2, 70'000}, 0, 2, "r", "", 1};

struct served {
  operation what;
  mp::request request;
};

/// One request of each operation.
const std::vector<served> requests{
  {operation::get_chunk_size, mp::get_chunk_size_request{}},
  {operation::get_experimental, mp::get_experimental_request{}},
  {operation::noop, mp::noop_request{}},
  {operation::ping, mp::ping_request{1ull << 62}},
  {operation::clear, mp::clear_request{true}},
  {operation::lookup, mp::lookup_request{key}},
  {operation::query_prefetch_status, mp::query_prefetch_status_request{"r"}},
  {operation::wait_prefetch_status, mp::wait_prefetch_status_request{"r", 0.5}},
  {operation::free_lookup_locks, mp::free_lookup_locks_request{key}},
  {operation::end_session, mp::end_session_request{"r"}},
  {operation::report_block_allocation, mp::report_block_allocation_request{}},
  {operation::subscribe_kv_events, mp::subscribe_kv_events_request{7, "m", 0, 64}},
  {operation::register_kv_cache_engine_driven_context,
   mp::register_request{7, "m", 1, 16, 2, 16, "float16", false, 16}},
  {operation::unregister_kv_cache_engine_driven_context, mp::unregister_request{7}},
  {operation::prepare_store, mp::prepare_store_request{key, 7}},
  {operation::commit_store, mp::commit_store_request{key, 7, golden::as_bytes("data")}},
  {operation::prepare_retrieve, mp::prepare_retrieve_request{key, 7}},
  {operation::commit_retrieve, mp::commit_retrieve_request{key, 7}},
};

template <class Request>
Request parsed(operation what, const mp::wire::frames& arguments) {
  auto result = mp::wire::parse(what, arguments);
  REQUIRE(result);
  return std::get<Request>(*result);
}

bool reads(operation what, const mp::wire::frames& arguments) {
  return static_cast<bool>(mp::wire::parse(what, arguments));
}

caf::expected<operation> operation_in(std::string_view frame) {
  return mp::parse_operation(golden::as_bytes(frame));
}

} // namespace

TEST_SUITE("mp request") {
  TEST_CASE("an operation is named by its number or its name") {
    for (unsigned number = 0; number < 256; ++number) {
      const auto what = static_cast<operation>(number);
      const auto name = mp::to_string(what);
      CAPTURE(number);
      const bool frozen = number >= 1 && number <= 33 && number != 11;
      const bool named = frozen || (number >= 100 && number <= 102);
      CHECK((name != "unknown") == named);
      const auto by_number = operation_in(uint_frame(number));
      CHECK(static_cast<bool>(by_number) == frozen);
      if (frozen)
        CHECK(*by_number == what);
      else
        CHECK(by_number.error() == errc::not_found);
      if (named)
        CHECK(operation_in(text_frame(name)) == what);
    }
    CHECK(mp::to_string(operation::ping) == "ping");
    CHECK(operation_in(bytes("16")) == operation::ping);
    CHECK(operation_in(bytes("cf0000000000000016")) == operation::ping);
    CHECK(operation_in(bytes("d016")) == operation::ping);
  }

  TEST_CASE("an unknown operation differs from an unreadable one") {
    for (const std::string hex :
         {"00", "0b", "22", "ccfa", "cd0116", "ff", "d0ea", "cfffffffffffffffff", "a0",
          "a6 6e6f73756368", "a4 50494e47", "a7756e6b6e6f776e"}) {
      auto digits = std::string{hex};
      std::erase(digits, ' ');
      CAPTURE(digits);
      CHECK(operation_in(bytes(digits)).error() == errc::not_found);
    }
    for (const std::string hex :
         {"", "c0", "c1", "c3", "90", "9116", "80", "c40116", "cb4036000000000000", "d40116",
          "1616", "a470696e", "a470696e6700", "cd16", "616b", "dbffffffff"}) {
      CAPTURE(hex);
      CHECK(operation_in(bytes(hex)).error() == errc::malformed_frame);
    }
    CHECK(operation_in("ack").error() == errc::malformed_frame);
    CHECK(operation_in(std::string(5000, '\x91')).error() == errc::malformed_frame);
  }

  TEST_CASE("each request reads the same after writing") {
    CHECK(requests.size() == std::variant_size_v<mp::request>);
    for (const auto& one : requests) {
      const auto what = one.what;
      const auto& request = one.request;
      CAPTURE(mp::to_string(what));
      const auto frames = mp::wire::argument_frames(request);
      const auto again = mp::wire::parse(what, frames);
      REQUIRE(again);
      CHECK(again->index() == request.index());
      CHECK(mp::wire::argument_frames(*again) == frames);
    }
  }

  TEST_CASE("an operation takes exactly its arguments") {
    for (const auto& one : requests) {
      const auto what = one.what;
      const auto& request = one.request;
      CAPTURE(mp::to_string(what));
      auto frames = mp::wire::argument_frames(request);
      frames.push_back("\x01");
      CHECK_FALSE(reads(what, frames));
      frames.resize(40, "\x01");
      CHECK_FALSE(reads(what, frames));
      frames = mp::wire::argument_frames(request);
      while (!frames.empty()) {
        frames.pop_back();
        CHECK_FALSE(reads(what, frames));
      }
    }
  }

  TEST_CASE("an argument that is cut, or has bytes behind it, is refused") {
    for (const auto& one : requests) {
      const auto what = one.what;
      const auto& request = one.request;
      CAPTURE(mp::to_string(what));
      const auto frames = mp::wire::argument_frames(request);
      for (size_t i = 0; i < frames.size(); ++i)
        for (size_t size = 0; size < frames[i].size(); ++size) {
          auto cut = frames;
          cut[i].resize(size);
          CHECK(mp::wire::parse(what, cut).error() == errc::malformed_frame);
        }
      for (size_t i = 0; i < frames.size(); ++i)
        for (const std::string more : {"00", "c1"}) {
          auto longer = frames;
          longer[i] += bytes(more);
          CHECK(mp::wire::parse(what, longer).error() == errc::malformed_frame);
        }
    }
  }

  TEST_CASE("what kvasir does not serve is told apart from what is malformed") {
    for (unsigned number = 0; number < 256; ++number) {
      const auto what = static_cast<operation>(number);
      const bool is_served = std::any_of(requests.begin(), requests.end(),
                                         [&](auto& x) { return x.what == what; });
      CAPTURE(number);
      if (!is_served)
        CHECK(mp::wire::parse(what, {}).error() == errc::not_found);
    }
  }

  TEST_CASE("an instance is any 64 bits, and a ping may have none") {
    const auto what = operation::unregister_kv_cache_engine_driven_context;
    auto id = [&](const char* hex) {
      return parsed<mp::unregister_request>(what, {bytes(hex)}).instance_id;
    };
    CHECK(id("00") == 0);
    CHECK(id("cf7fffffffffffffff") == 0x7fffffffffffffff);
    CHECK(id("cfffffffffffffffff") == std::numeric_limits<uint64_t>::max());
    CHECK(id("ff") == std::numeric_limits<uint64_t>::max());
    CHECK(id("d38000000000000000") == 1ull << 63);
    for (const std::string wrong : {"90", "80", "c40100"})
      CHECK_FALSE(reads(what, {bytes(wrong)}));
    CHECK_FALSE(parsed<mp::ping_request>(operation::ping, {"\xc0"}).instance);
    CHECK(parsed<mp::ping_request>(operation::ping, {"\x05"}).instance == 5u);
    for (const std::string wrong : {"c2", "c3", "a0", "a135", "cb4014000000000000", "90"})
      CHECK_FALSE(reads(operation::ping, {bytes(wrong)}));
  }

  TEST_CASE("a plain bool is whatever Python takes for true") {
    for (const std::string yes : {"c3", "01", "ff", "a178", "c40100", "91c0", "81a178c0",
                                  "cb3ff0000000000000", "ca3f800000"}) {
      CAPTURE(yes);
      CHECK(parsed<mp::clear_request>(operation::clear, {bytes(yes)}).force);
    }
    for (const std::string no :
         {"c2", "c0", "00", "a0", "c400", "90", "80", "cb0000000000000000"}) {
      CAPTURE(no);
      CHECK_FALSE(parsed<mp::clear_request>(operation::clear, {bytes(no)}).force);
    }
    CHECK_FALSE(reads(operation::clear, {bytes("c1")}));
  }

  TEST_CASE("data is a view into its frame, whatever the width of its length") {
    for (const std::string head : {"c404", "c50004", "c600000004"}) {
      CAPTURE(head);
      const mp::wire::frames frames{mp::wire::key_frame(key), uint_frame(7),
                                    bytes(head) + "data"};
      const auto data = parsed<mp::commit_store_request>(operation::commit_store, frames).data;
      CHECK(data.size() == 4);
      CHECK(reinterpret_cast<const char*>(data.data()) + 4
            == frames[2].data() + frames[2].size());
    }
    CHECK(parsed<mp::commit_store_request>(
            operation::commit_store, {mp::wire::key_frame(key), uint_frame(7), bytes("c400")})
            .data.empty());
    for (const std::string wrong : {"a464617461", "c0", "90", "c6ffffffff", "c7040164617461"})
      CHECK_FALSE(reads(operation::commit_store,
                        {mp::wire::key_frame(key), uint_frame(7), bytes(wrong)}));
  }

  TEST_CASE("a wait has an end") {
    auto seconds = [](const char* hex) {
      return parsed<mp::wait_prefetch_status_request>(operation::wait_prefetch_status,
                                                      {text_frame("r"), bytes(hex)})
        .timeout_seconds;
    };
    CHECK(seconds("cb4014000000000000") == 5.0);
    CHECK(seconds("ca40a00000") == 5.0);
    CHECK(seconds("05") == 5.0);
    CHECK(seconds("cfffffffffffffffff") == 0x1p64);
    // No time to wait, in either spelling.
    CHECK(seconds("cbbff0000000000000") == -1.0);
    for (const std::string minus_one :
         {"ff", "d0ff", "d1ffff", "d2ffffffff", "d3ffffffffffffffff"})
      CHECK(seconds(minus_one.c_str()) == -1.0);
    CHECK(seconds("d38000000000000000") == -0x1p63);
    for (const std::string wrong : {"cb7ff0000000000000", "cbfff0000000000000",
                                    "cb7ff8000000000000", "ca7f800000", "a135", "c0", "90"})
      CHECK_FALSE(reads(operation::wait_prefetch_status, {text_frame("r"), bytes(wrong)}));
  }

  TEST_CASE("a subscription is bounded") {
    auto of = [](uint64_t most) {
      return mp::wire::frames{uint_frame(7), text_frame("m"), uint_frame(0), uint_frame(most)};
    };
    CHECK_FALSE(reads(operation::subscribe_kv_events, of(0)));
    CHECK(reads(operation::subscribe_kv_events, of(1)));
    CHECK(reads(operation::subscribe_kv_events, of(1024)));
    CHECK_FALSE(reads(operation::subscribe_kv_events, of(1025)));
  }

  TEST_CASE("a registration keeps its ranges") {
    const auto what = operation::register_kv_cache_engine_driven_context;
    const mp::register_request good{7, "m", 1, 16, 2, 16, "float16", true, std::nullopt};
    auto with = [&](auto change) {
      auto changed = good;
      change(changed);
      return reads(what, {mp::wire::registration_frame(changed)});
    };
    CHECK(with([](auto&) {}));
    const std::pair<uint32_t mp::register_request::*, uint32_t> counts[]{
      {&mp::register_request::world_size, 255},
      {&mp::register_request::block_size, 0xffffffff},
      {&mp::register_request::num_layers, 0xffffffff},
      {&mp::register_request::hidden_dim_size, 0xffffffff}};
    for (const auto& count : counts) {
      CHECK_FALSE(with([&](auto& r) { r.*count.first = 0; }));
      CHECK(with([&](auto& r) { r.*count.first = count.second; }));
    }
    CHECK_FALSE(with([](auto& r) { r.world_size = 256; }));
    CHECK_FALSE(with([](auto& r) { r.num_physical_slots = 0; }));
    CHECK(with([](auto& r) { r.num_physical_slots = 1; }));
    CHECK_FALSE(with([](auto& r) { r.model_name.clear(); }));
    CHECK_FALSE(with([](auto& r) { r.model_name = "a@b"; }));
    CHECK_FALSE(with([](auto& r) { r.model_name.assign(1025, 'x'); }));
    CHECK_FALSE(with([](auto& r) { r.dtype.assign(65, 'x'); }));

    // The layout is refused where it would not be one.
    CHECK(good.layout(16));
    for (const std::string name : {"float17", "", "Float16"}) {
      auto odd = good;
      odd.dtype = name;
      CHECK(odd.layout(16).error() == errc::invalid_argument);
    }
    auto huge = good;
    huge.num_layers = huge.hidden_dim_size = 0xffffffff;
    CHECK(huge.layout(16).error() == errc::too_large);

    // Missing, negative and of another type, field by field, on the wire.
    const auto frame = mp::wire::registration_frame(good);
    for (const std::string name : {"instance_id", "model_name", "world_size", "block_size",
                                   "num_layers", "hidden_dim_size", "dtype_str", "use_mla"}) {
      CAPTURE(name);
      auto renamed = frame;
      renamed[renamed.find(text_frame(name)) + 1] = 'X';
      CHECK(mp::wire::parse(what, {renamed}).error() == errc::invalid_argument);
      for (const std::string wrong : {"c0", "90", "80"}) { // The last of equal names counts.
        auto again = frame + text_frame(name) + bytes(wrong);
        again[0] = static_cast<char>(again[0] + 1);
        CHECK(mp::wire::parse(what, {again}).error() == errc::invalid_argument);
      }
    }
    for (const std::string name :
         {"world_size", "block_size", "num_layers", "hidden_dim_size", "num_physical_slots"})
      for (const std::string wrong :
           {"ff", "c3", "cf0000000100000000", "a131", "cb3ff0000000000000"}) {
        auto again = frame + text_frame(name) + bytes(wrong);
        again[0] = static_cast<char>(again[0] + 1);
        CHECK(mp::wire::parse(what, {again}).error() == errc::invalid_argument);
      }
    auto renamed = frame; // num_physical_slots has a default
    renamed[renamed.find("num_physical_slots")] = 'X';
    CHECK_FALSE(parsed<mp::register_request>(what, {renamed}).num_physical_slots);
  }

  TEST_CASE("an argument that becomes a name is UTF-8") {
    const auto bad = text_frame("r\xff");
    const auto seven = uint_frame(7);
    const std::pair<operation, mp::wire::frames> calls[]{
      {operation::query_prefetch_status, {bad}},
      {operation::wait_prefetch_status, {bad, bytes("00")}},
      {operation::end_session, {bad}},
      {operation::subscribe_kv_events, {seven, bad, bytes("00"), seven}},
      {operation::register_kv_cache_engine_driven_context,
       {mp::wire::registration_frame({7, "m\xff", 1, 16, 2, 16, "float16", true, 16})}},
      {operation::register_kv_cache_engine_driven_context,
       {mp::wire::registration_frame({7, "m", 1, 16, 2, 16, "float16\xff", true, 16})}}};
    for (const auto& [what, arguments] : calls) {
      CAPTURE(mp::to_string(what));
      const auto request = mp::wire::parse(what, arguments);
      REQUIRE_FALSE(request);
      CHECK(request.error() == errc::invalid_argument);
    }
  }

  TEST_CASE("what the fuzzer starts from and once found keeps holding") {
    CHECK(corpus::replay("mp_request",
                         [](std::string_view text) {
                           return mp::properties::check_request(golden::as_bytes(text));
                         })
          > 30);
  }
}
