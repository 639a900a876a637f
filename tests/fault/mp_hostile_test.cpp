// Whatever comes to the MP port: it is refused at once, harms nobody, and runs nothing.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

std::string text(std::initializer_list<unsigned char> raw) {
  return {raw.begin(), raw.end()};
}

std::string msgpack(const json& value) {
  return mp_client::packed(value);
}

/// What no argument of any operation is, or hardly any.
std::vector<std::string> odd_frames() {
  std::string deep(5000, '\x91');
  std::string deep_maps;
  for (auto i = 0; i < 2000; ++i)
    deep_maps += "\x81\xa1k";
  auto long_token = json::array({uint64_t{1} << 32});
  return {
    "",
    text({0xc1}),                               // Never used.
    text({0x93, 0x01}),                         // An array that ends early.
    text({0x83, 0xa1, 'k'}),                    // A map that ends early.
    text({0x01, 0x01}),                         // Two values.
    text({0xdd, 0xff, 0xff, 0xff, 0xff}),       // 4 Gi elements, claimed.
    text({0xdf, 0xff, 0xff, 0xff, 0xff}),       // 4 Gi pairs,
    text({0xdb, 0xff, 0xff, 0xff, 0xff, 'x'}),  // 4 GiB of text,
    text({0xc6, 0xff, 0xff, 0xff, 0xff, 'x'}),  // of bytes,
    text({0xc9, 0xff, 0xff, 0xff, 0xff, 0x01}), // and of an extension.
    text({0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}), // Not a number.
    text({0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}),    // The least of all.
    text({0xa2, 0xff, 0xfe}),                   // Not UTF-8.
    deep,
    deep + '\xc0',
    deep_maps,
    msgpack(json::object()),
    msgpack(json::array()),
    msgpack(std::string(100'000, 'x')),
    msgpack(json{{"token_ids", long_token}}),
    std::string(70'000, '\x00'),
  };
}

/// Keys that are right but for one field.
std::vector<json> odd_keys(const json& good) {
  std::vector<json> result;
  auto with = [&](const char* name, const json& value) {
    result.push_back(good);
    result.back()[name] = value;
  };
  with("model_name", "a@b");
  with("model_name", std::string(5000, 'm'));
  with("model_name", nullptr);
  with("world_size", 0);
  with("world_size", 1'000'000);
  with("world_size", -1);
  with("worker_id", 1);
  with("worker_id", "0");
  with("token_ids", "tokens");
  with("token_ids", json::array({-1}));
  with("token_ids", json::array({uint64_t{1} << 32}));
  with("token_ids", json::array({1.5}));
  with("token_ids", json::array({json::array({1})}));
  with("start", 1);
  with("start", -16);
  with("end", 17);
  with("end", uint64_t{1} << 63);
  with("request_id", std::string(100'000, 'r'));
  with("request_id", 7);
  with("cache_salt", "a/b");
  with("cache_salt", std::string("a\0b", 3));
  with("cache_salt", std::string(129, 's'));
  with("num_kv_readers", 129);
  with("num_kv_readers", -1);
  for (auto name : {"model_name", "world_size", "token_ids", "start", "end", "request_id"}) {
    result.push_back(good);
    result.back().erase(name);
  }
  return result;
}

/// A server with one chunk stored, and a client that must not notice anything.
struct bystander {
  explicit bystander(std::vector<std::string> arguments = {})
    : served(std::move(arguments)),
      client(served.mp_port()) {
    REQUIRE(client.enroll(1));
    REQUIRE(client.store(range));
  }

  /// All is as it was.
  void check_unharmed() {
    REQUIRE(served.process().running());
    CHECK(client.ping().what == mp_reply::kind::value);
    CHECK(client.exact_prefix(range) == 2);
    served.wait_for_rest();
    CHECK(served.storage("objects") == 2);
    CHECK(served.get("/healthz").status == 200);
  }

  chunk_range range{.prompt = 1, .last = 2};
  mp_daemon served;
  mp_client client;
};

/// A valid list of tensors that another value takes the place of.
std::string pickle_of(const std::string& value) {
  return "\x80\x04]" + value + "a.";
}

std::string pickled_text(const std::string& value) {
  return "X" + std::string{static_cast<char>(value.size()), 0, 0, 0} + value;
}

} // namespace

TEST_CASE("messages that cannot be answered are dropped and counted") {
  bystander given;
  mp_client hostile{given.served.mp_port()};
  hostile.send({"one frame"});
  hostile.send({""});
  hostile.send({msgpack(0), std::string((64 << 10) + 1, 'o')});
  hostile.send({std::string(257, 'u'), msgpack("ping"), msgpack(nullptr)});
  wait_until([&] { return given.served.mp("unusable_messages") == 4; });
  CHECK(hostile.call("noop").value == "OK");
  given.check_unharmed();
}

TEST_CASE("operations that do not exist, or are not served, fail at once") {
  bystander given;
  mp_client hostile{given.served.mp_port()};
  std::vector<json> operations{0,
                               11,
                               34,
                               99,
                               100,
                               -1,
                               1'000'000'000'000,
                               "",
                               "lookup ",
                               "PING",
                               nullptr,
                               true,
                               1.5,
                               json::array(),
                               json::object(),
                               "register_kv_cache",
                               "store",
                               7,
                               "cb_unified_lookup",
                               "p2p_lookup_and_lock",
                               "server_module_call"};
  for (auto& operation : operations) {
    CAPTURE(operation.dump());
    CHECK(hostile.call(operation, {1, 2}).what == mp_reply::kind::error);
  }
  // A uid is echoed, whatever it is; an operation by its number or by its name.
  for (std::string uid : {"", "u", "\xff\xff", "a long name of a request"})
    for (json operation : {json(22), json("ping")}) {
      hostile.send({uid, msgpack(operation), msgpack(nullptr)});
      auto reply = hostile.receive();
      REQUIRE(reply.size() == 3);
      CHECK(reply[0] == uid);
      CHECK(reply[1] == msgpack(operation));
    }
  given.check_unharmed();
}

TEST_CASE("an operation is answered whatever its length") {
  bystander given;
  mp_client hostile{given.served.mp_port()};
  auto unserved = given.served.mp("unserved_operations");
  const std::string nested(5000, '\x91');
  const std::vector<std::string> operations{
    msgpack(std::string(250, 'o')),
    msgpack(std::string(254, 'o')),
    msgpack(std::string(255, 'o')),
    msgpack(std::string(5000, 'o')),
    nested + '\xc0',
    std::string(64 << 10, 'o'),
  };
  for (auto& operation : operations) {
    CAPTURE(operation.size());
    const std::string uid(256, 'u');
    hostile.send({uid, operation, msgpack(1)});
    // The error that LMCache's clients take at once: another operation than the one asked.
    CHECK(hostile.receive() == std::vector<std::string>{uid, msgpack("error")});
  }
  CHECK(given.served.mp("unserved_operations") == unserved + operations.size());
  CHECK(given.served.mp("unusable_messages") == 0);
  given.check_unharmed();
}

TEST_CASE("every argument of every operation may be garbage; all is answered") {
  bystander given;
  mp_client hostile{given.served.mp_port()};
  auto key = mp_client::key_of(given.range, true);
  auto missing = mp_client::key_of({.prompt = 2, .last = 2}, true);
  json registration{{"instance_id", 5},       {"model_name", "m"}, {"world_size", 1},
                    {"block_size", 16},       {"num_layers", 2},   {"hidden_dim_size", 128},
                    {"dtype_str", "float16"}, {"use_mla", false},  {"num_physical_slots", 16}};
  auto nothing = json::binary({});
  const std::vector<std::pair<std::string, std::vector<json>>> calls{
    {"get_chunk_size", {}},
    {"get_experimental", {}},
    {"noop", {}},
    {"ping", {nullptr}},
    {"lookup", {missing, 1}},
    {"query_prefetch_status", {"r"}},
    {"wait_prefetch_status", {"r", 0.0}},
    {"free_lookup_locks", {missing, 1}},
    {"end_session", {"r"}},
    {"register_kv_cache_engine_driven_context", {registration}},
    {"unregister_kv_cache_engine_driven_context", {99}},
    {"prepare_store", {key, 1}},
    {"commit_store", {key, 1, nothing}},
    {"prepare_retrieve", {key, 1}},
    {"commit_retrieve", {key, 1}},
    {"report_block_allocation", {1, "m", json::array()}},
    {"subscribe_kv_events", {1, "m", 0, 1}},
  };
  auto odd = odd_frames();
  auto send_all = [&](const std::string& operation, const std::vector<std::string>& frames) {
    auto reply = hostile.answer(hostile.ask(operation, frames));
    CHECK(reply);
    CHECK_FALSE((operation == "commit_store" && reply.is_true()));
    return reply;
  };
  for (auto& [operation, arguments] : calls) {
    CAPTURE(operation);
    std::vector<std::string> good;
    for (auto& argument : arguments)
      good.push_back(msgpack(argument));
    for (size_t at = 0; at < good.size(); ++at)
      for (size_t i = 0; i < odd.size(); ++i) {
        CAPTURE(at);
        CAPTURE(i);
        auto frames = good;
        frames[at] = odd[i];
        send_all(operation, frames);
      }
    for (size_t count = 0; count < 20; ++count)
      if (count != good.size()) {
        auto frames = good;
        frames.resize(count, msgpack(0));
        send_all(operation, frames);
      }
    if (!arguments.empty() && arguments[0].contains("token_ids"))
      for (auto& odd_key : odd_keys(arguments[0])) {
        auto frames = good;
        frames[0] = msgpack(odd_key);
        send_all(operation, frames);
      }
  }
  CHECK(given.served.mp("malformed_requests") > 500);
  hostile.call("unregister_kv_cache_engine_driven_context", {5});
  hostile.end_session("r");
  given.check_unharmed();
}

TEST_CASE("a name that is not UTF-8 is refused and comes into no status") {
  bystander given;
  mp_client hostile{given.served.mp_port()};
  const std::string bad("x\xff");
  CHECK_FALSE(hostile.enroll(7, {}, bad));
  CHECK_FALSE(hostile.enroll(7, {.dtype = bad}));
  REQUIRE(hostile.enroll(7, {}));
  for (auto range : {chunk_range{.model = bad}, {.request = bad}, {.salt = bad}}) {
    range.prompt = 2;
    CHECK(hostile.lookup(range) == 0);
    CHECK(hostile.prepare_store(range).no_buffers);
    CHECK(hostile.commit_store(range).is_false());
    CHECK_FALSE(hostile.prepare_retrieve(range).success);
    CHECK(hostile.commit_retrieve(range).is_false());
    CHECK(hostile.free_locks(range).what == mp_reply::kind::nothing);
  }
  CHECK(hostile.call("query_prefetch_status", {bad}).value == 0);
  CHECK(hostile.call("wait_prefetch_status", {bad, 0.0}).value == 0);
  CHECK(hostile.end_session(bad).what == mp_reply::kind::nothing);
  CHECK(hostile.call("subscribe_kv_events", {7, bad, 0, 1}).value.at("enabled") == false);
  for (auto path : {"/v1/status", "/status", "/v1/objects", "/v1/quotas", "/metrics"}) {
    CAPTURE(path);
    auto reply = given.served.get(path);
    CHECK(reply.status == 200);
    // Not even as the character that takes the place of such a byte.
    CHECK(reply.body.find('\xff') == std::string::npos);
    CHECK(reply.body.find("x\xef\xbf\xbd") == std::string::npos);
  }
  CHECK(hostile.leave());
  given.check_unharmed();
}

TEST_CASE("layouts that cannot be are refused") {
  bystander given;
  mp_client hostile{given.served.mp_port()};
  auto refused = [&](const mp_layout& layout) {
    CHECK_FALSE(hostile.enroll(7, layout, "other"));
  };
  refused({.layers = 0});
  refused({.hidden = 0});
  refused({.layers = 0xffff'ffff, .hidden = 0xffff'ffff});
  refused({.layers = 1 << 20, .hidden = 1 << 20});
  refused({.dtype = "complex64"});
  refused({.dtype = "Tensor"});
  CHECK_FALSE(hostile.enroll(7, {}, "a@b"));
  CHECK_FALSE(hostile.enroll(7, {}, "m", 0));
  CHECK_FALSE(hostile.enroll(7, {}, "m", 256));
  // Larger than the pool: known, but nothing is ever stored.
  CHECK(hostile.enroll(8, {.layers = 1 << 14, .hidden = 1 << 12}, "huge"));
  chunk_range range{.prompt = 2, .last = 2, .model = "huge"};
  CHECK(hostile.prepare_store(range).slots.empty());
  CHECK(hostile.commit_store(range).is_false());
  CHECK(given.served.mp("registrations_refused") == 4);
  CHECK(given.served.mp("malformed_requests") == 5);
  given.check_unharmed();
}

TEST_CASE("pickles that call, nest or lie are refused, and nothing of them is run") {
  bystander given;
  auto marker = std::filesystem::temp_directory_path()
                / ("kvasir_pickle_marker_" + std::to_string(getpid()));
  auto command = "touch " + marker.string();
  auto evaluated = "open('" + marker.string() + "', 'w')";
  auto call
    = [](const std::string& module, const std::string& name, const std::string& argument) {
        return "c" + module + "\n" + name + "\n" + pickled_text(argument) + "\x85R";
      };
  auto stacked
    = [](const std::string& module, const std::string& name, const std::string& argument) {
        return pickled_text(module) + pickled_text(name) + "\x93" + pickled_text(argument)
               + "\x85R";
      };
  std::string nested(")");
  for (auto i = 0; i < 200; ++i)
    nested += "\x85";
  mp_client client{given.served.mp_port()};
  REQUIRE(client.enroll(2, {}, "m", 1, false));
  chunk_range range{.prompt = 2, .last = 2};
  // A storage that claims an element more than it has bytes for.
  auto lying = client.inline_data(range);
  auto head = kvasir::mp::tensor_list_writer::make(
                client.layout.type(), kvasir::tensor_shape{client.layout.dims()}, 2)
                ->piece(0)
                .size();
  ++lying[head - 8];
  auto good = client.inline_data(range);
  const std::vector<std::string> payloads{
    pickle_of(call("os", "system", command)),
    pickle_of(call("posix", "system", command)),
    pickle_of(stacked("os", "system", command)),
    pickle_of(call("builtins", "eval", evaluated)),
    pickle_of(stacked("builtins", "eval", evaluated)),
    pickle_of(call("torch.serialization", "load", marker.string())),
    "cos\nsystem\n(S'" + command + "'\ntR.",
    pickle_of(nested),
    lying,
    good.substr(0, good.size() / 2),
    good.substr(0, good.size() - 1),
    "not a pickle",
    std::string(1 << 20, '('),
    std::string(1 << 20, ']'),
    "\x80\x04\x8e" + std::string(8, '\x7f'),
  };
  for (size_t i = 0; i < payloads.size(); ++i) {
    CAPTURE(i);
    client.prepare_store(range);
    CHECK(client.commit_store(range, payloads[i]).is_false());
    CHECK(client.lookup(range) == 0);
  }
  CHECK(given.served.mp("rejected_payloads") == payloads.size());
  CHECK_FALSE(std::filesystem::exists(marker));
  CHECK(client.leave());
  given.check_unharmed();
}

TEST_CASE("another protocol's client at the MP port is counted and told in the log") {
  bystander given;
  auto port = given.served.mp_port();
  auto seen = [&] {
    return given.served.mp("handshakes_failed") + given.served.mp("closed_unused");
  };
  std::string http = "GET / HTTP/1.1\r\nHost: kvasir\r\n\r\n";
  std::string greeting = "\xff" + std::string(8, '\0') + "\x7f\x03";
  const std::vector<bytes> openings{get_header("m@1@0@1@half").encode(),
                                    to_bytes(http),
                                    to_bytes(greeting),
                                    value_of(7, 100'000),
                                    {}};
  for (size_t i = 0; i < openings.size(); ++i) {
    CAPTURE(i);
    auto before = seen();
    fault_client stranger{port};
    REQUIRE(stranger);
    stranger.send(openings[i]);
    stranger.close();
    wait_until([&] { return seen() > before; });
  }
  CHECK(given.served.log().find("lm_port=" + std::to_string(given.served.lm_port()))
        != std::string::npos);
  given.check_unharmed();
}

TEST_CASE("a ZMTP client at the other ports is turned away, and the ports go on") {
  bystander given;
  auto lm_port = given.served.lm_port();
  auto greeting = "\xff" + std::string(8, '\0') + "\x7f\x03\x00NULL" + std::string(48, '\0');
  for (auto port : {lm_port, given.served.http_port()}) {
    fault_client stranger{port};
    REQUIRE(stranger);
    stranger.send(to_bytes(greeting));
    std::array<std::byte, 1> ignored{};
    while (stranger.receive(ignored)) // An answer in its own protocol, perhaps; then the end.
      continue;
  }
  auto status = status_of(given.served);
  CHECK(status["lm"]["wrong_protocol"] == 1);
  CHECK(status["http"]["wrong_protocol"] == 1);
  CHECK(lm_wire{lm_port}.healthy());
  given.check_unharmed();
}
