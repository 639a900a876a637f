#include "messages/mp_reply.hpp"
#include "wire/golden.hpp"
#include "wire/mp_wire.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <set>

using namespace kvasir;

namespace {

using nlohmann::json;

std::string frame_bytes(const json& frame) {
  const auto bytes = golden::from_hex(frame["hex"].get<std::string>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The argument or result frames of a message, i.e. those after uid and operation.
mp::wire::frames payload(const json& message) {
  mp::wire::frames result;
  for (size_t i = 2; i < message["frames"].size(); ++i)
    result.push_back(frame_bytes(message["frames"][i]));
  return result;
}

caf::expected<mp::operation> operation_of(const json& message) {
  const auto bytes = golden::from_hex(message["frames"][1]["hex"].get<std::string>());
  return mp::parse_operation(bytes);
}

/// Peer and uid, which only a request and its reply share.
std::string call_of(const json& message) {
  return message["peer"].get<std::string>() + " "
         + message["frames"][0]["hex"].get<std::string>();
}

std::set<std::string> answered_calls(const json& messages) {
  std::set<std::string> result;
  for (const auto& x : messages)
    if (x.value("dir", "") == "S->C")
      result.insert(call_of(x));
  return result;
}

/// Not a note, not a reply, and not the flow control of a stream, which has no operation.
bool is_request(const json& message) {
  return message.value("dir", "") == "C->S" && message["op"] != "stream-control";
}

std::vector<slot> slots_of(const json& context) {
  std::vector<slot> result;
  for (const auto& x : context["slots"])
    result.push_back({x["offset"].get<uint64_t>(), x["length"].get<uint64_t>(), 0});
  return result;
}

mp::kv_layout layout_of(const json& context) {
  if (context["slots"].empty())
    return {};
  const auto& first = context["slots"][0];
  auto dims = first["shape"].get<std::vector<uint32_t>>();
  mp::kv_layout result;
  result.dtype = tensor_dtype_from_name(first["dtype"].get<std::string>()).value();
  result.single_plane = dims.size() == 3;
  result.hidden = dims[dims.size() - 1];
  result.slots = dims[dims.size() - 2];
  result.layers = dims[dims.size() - 3];
  return result;
}

/// A result as kvasir writes it. A result with inline data has its own check.
std::string encoded(mp::operation what, const json& value) {
  if (value.is_boolean())
    return mp::encode_bool(value.get<bool>());
  if (value.is_number_unsigned())
    return mp::encode_uint(value.get<uint64_t>());
  if (value.is_string())
    return mp::encode_text(value.get<std::string>());
  if (value.is_array()) {
    const auto texts = value.get<std::vector<std::string>>();
    const std::vector<std::string_view> views{texts.begin(), texts.end()};
    return mp::encode_texts(views);
  }
  if (what == mp::operation::register_kv_cache_engine_driven_context)
    return mp::encode_registration(value["shm_name"].get<std::string>(),
                                   value["pool_size"].get<uint64_t>());
  const auto& context = value["context"];
  if (what == mp::operation::prepare_store) {
    if (context.empty())
      return mp::encode_no_buffers();
    const auto indices = context["chunk_indices"].get<std::vector<uint32_t>>();
    return mp::encode_store_slots(slots_of(context), indices, layout_of(context));
  }
  if (!value["success"].get<bool>())
    return mp::encode_retrieve_failed();
  return mp::encode_retrieve_slots(slots_of(context), layout_of(context));
}

const char* const conversations[]
  = {"mp/conversation_shm_chunk16.json", "mp/conversation_pickle_chunk16.json"};

} // namespace

TEST_SUITE("mp conversation") {
  TEST_CASE(
    "each request that LMCache's server answered is read, and reads the same rewritten") {
    for (const std::string name : conversations) {
      CAPTURE(name);
      const auto messages = golden::vectors(name, "messages");
      const auto answered = answered_calls(messages);
      size_t count = 0;
      size_t same_bytes = 0;
      for (const auto& x : messages) {
        if (!is_request(x) || answered.count(call_of(x)) == 0)
          continue;
        CAPTURE(x.dump());
        const auto what = operation_of(x);
        REQUIRE(what);
        CHECK(mp::to_string(*what) == x["op"].get<std::string>());
        const auto arguments = payload(x);
        const auto parsed = mp::wire::parse(*what, arguments);
        REQUIRE(parsed);
        const auto written = mp::wire::argument_frames(*parsed);
        const auto again = mp::wire::parse(*what, written);
        REQUIRE(again);
        CHECK(mp::wire::argument_frames(*again) == written);
        same_bytes += written == arguments ? 1 : 0;
        ++count;
      }
      CHECK(count > 100);
      // But for a block report, whose content is not kept, and two keys in other spellings.
      CHECK(count - same_bytes == 3);
    }
  }

  TEST_CASE("each result that LMCache's server wrote is written byte for byte") {
    for (const std::string name : conversations) {
      CAPTURE(name);
      size_t count = 0;
      size_t inline_data = 0;
      for (const auto& x : golden::vectors(name, "messages")) {
        if (x.value("dir", "") != "S->C" || x["frames"].size() != 3
            || x["op"] == "subscribe_kv_events")
          continue;
        CAPTURE(x.dump());
        const auto what = operation_of(x);
        REQUIRE(what);
        const auto result = payload(x).front();
        const auto& value = x["frames"][2]["decoded"];
        ++count;
        if (value.is_object() && value.value("success", false) && value["context"].empty()) {
          // "<bytes N: …>": the data is in the frame only.
          const auto size = std::stoul(value["data"].get<std::string>().substr(7));
          const auto frame = mp::encode_retrieve_data(size, {}, {});
          REQUIRE(frame);
          CHECK(frame->head.size() + size + frame->tail.size() == result.size());
          CHECK(result.starts_with(frame->head));
          CHECK(result.ends_with(frame->tail));
          ++inline_data;
          continue;
        }
        CHECK(encoded(*what, value) == result);
      }
      CHECK(count > 50);
      CHECK((inline_data > 0)
            == (std::string_view{name}.find("pickle") != std::string_view::npos));
    }
  }

  TEST_CASE("data that msgpack cannot say the length of has no frame") {
    constexpr uint64_t longest = 0xffff'ffff;
    const auto frame = mp::encode_retrieve_data(longest, {}, {});
    REQUIRE(frame);
    CHECK(frame->head.ends_with("\xc6\xff\xff\xff\xff"));
    CHECK(mp::encode_retrieve_data(longest + 1, {}, {}).error() == errc::too_large);
    CHECK(mp::encode_retrieve_data(std::numeric_limits<uint64_t>::max(), {}, {}).error()
          == errc::too_large);
  }

  TEST_CASE("what LMCache's server left unanswered is refused, unless the codec cannot know") {
    for (const std::string name : conversations) {
      CAPTURE(name);
      const auto messages = golden::vectors(name, "messages");
      const auto answered = answered_calls(messages);
      std::set<std::string> read;
      size_t refused = 0;
      for (const auto& x : messages) {
        if (!is_request(x) || answered.count(call_of(x)) != 0)
          continue;
        const auto what = operation_of(x);
        if (what && mp::wire::parse(*what, payload(x)))
          read.insert(x["op"].get<std::string>());
        else
          ++refused;
      }
      // An unknown instance, ranges off the chunks' borders, no readers, an unknown dtype.
      CHECK(read
            == std::set<std::string>{"lookup", "prepare_retrieve", "prepare_store",
                                     "register_kv_cache_engine_driven_context"});
      CHECK(refused >= 7);
    }
  }
}
