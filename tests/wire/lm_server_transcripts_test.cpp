// Replays what LMCache's own server was asked and answered (tests/golden/lm/transcripts.json).
#include "support/node_fixture.hpp"
#include "wire/golden.hpp"

#include <map>
#include <string>

using namespace kvasir;
using namespace kvasir::test;

namespace {

const std::string miss_reply = "900100000000000001000000020000000000000000000000"
                               "000000000000000000000000";

/// Where kvasir answers something else on purpose: what it answers, and whether it then closes.
struct deviation {
  std::string reply;
  bool closes = false;
};

const std::map<std::string, deviation> deviations{
  // A value longer than its shape and dtype would put the client out of step: never a hit.
  {"put_get_dtype_6", {miss_reply}},
  {"put_get_dtype_7", {miss_reply}},
  {"put_get_dtype_8", {miss_reply}},
  {"put_get_layer_key", {miss_reply + miss_reply}},
  {"put_get_tags", {miss_reply + miss_reply + miss_reply}},
  // Framing that is lost ends the connection; nothing is stored.
  {"negative_length_put_then_get", {"", true}},
  // A request that is well framed is answered, whatever else is wrong with it.
  {"bad_fmt_9", {miss_reply}},
  {"bad_dtype_9", {miss_reply}},
  {"bad_location_3", {miss_reply}},
  {"bad_key", {miss_reply}},
  {"nul_padded_key", {miss_reply}},
  // A PUT that was cut off never happened.
  {"exist_after_truncated_put", {miss_reply}},
  {"get_after_truncated_put", {miss_reply}},
};

} // namespace

TEST_CASE("every recorded conversation is answered as LMCache's server answers it") {
  node_fixture fixture;
  auto transcripts = golden::vectors("lm/transcripts.json", "transcripts");
  REQUIRE(transcripts.size() == 48);
  for (auto& transcript : transcripts) {
    auto name = transcript["name"].get<std::string>();
    if (name.starts_with("list"))
      continue; // LMCache never answers a LIST: see below.
    CAPTURE(name);
    auto client = fixture.client();
    client.send(golden::from_hex(transcript["send_hex"].get<std::string>()));
    if (transcript["then_FIN"].get<bool>())
      client.finish_sending();
    auto expected = transcript["reply_hex"].get<std::string>();
    auto closes = transcript["end"].get<std::string>().starts_with("closed");
    if (auto i = deviations.find(name); i != deviations.end()) {
      expected = i->second.reply;
      closes = i->second.closes;
    }
    CHECK(client.receive(expected.size() / 2) == golden::from_hex(expected));
    if (closes)
      CHECK(client.closed_by_server());
    else // Open, in step, and without a byte too many.
      CHECK(client.healthy());
  }
}

TEST_CASE("LIST is answered with the number of keys and the keys, one a line") {
  node_fixture fixture;
  auto client = fixture.client();
  REQUIRE(client.put("m@1@0@a@half", to_bytes("x")));
  REQUIRE(client.put("m@1@0@b@half", to_bytes("y")));
  client.send(raw_header{.command = 4}.encode());
  auto header = client.receive_header();
  CHECK(header.code == lm::return_code::success);
  CHECK(header.layout == object_layout{5, 0, {2, 0, 0, 0}});
  CHECK(client.receive(static_cast<size_t>(header.length))
        == to_bytes("m@1@0@a@half\nm@1@0@b@half"));
  CHECK(client.healthy());
}

TEST_CASE("LIST of an empty cache is an empty list") {
  node_fixture fixture;
  auto client = fixture.client();
  client.send(raw_header{.command = 4}.encode());
  auto header = client.receive_header();
  CHECK(header.code == lm::return_code::success);
  CHECK(header.length == 0);
  CHECK(client.healthy());
}
