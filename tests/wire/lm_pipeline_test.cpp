// A client that sends many requests at once: answers that are due never wait for those that are not.
#include "support/node_fixture.hpp"

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr int32_t large = 16 << 20; // The largest object of a pool of 64 MiB.

std::string key(int number) {
  return "m@1@0@" + std::to_string(number) + "@half";
}

bytes get_frame(int number) {
  return raw_header{2, 0, 1, 2, 0, {}, key(number)}.encode();
}

/// A GET of key 1, and a PUT of key 2 of which 600 bytes are still to come.
bytes get_and_torn_put() {
  auto frames = get_frame(1);
  auto put = raw_header{1, 1000, 5, 0, 0, {1000, 0, 0, 0}, key(2)}.encode();
  frames.insert(frames.end(), put.begin(), put.end());
  frames.resize(frames.size() + 400);
  return frames;
}

} // namespace

TEST_CASE("pipelined GETs of more than readers may hold at once are all answered") {
  node_fixture fixture;
  auto client = fixture.client();
  for (auto i = 0; i < 3; ++i)
    REQUIRE(client.put(key(i), pattern(large, static_cast<uint64_t>(i))));
  bytes all;
  for (auto i = 0; i < 3; ++i) {
    auto frame = get_frame(i);
    all.insert(all.end(), frame.begin(), frame.end());
  }
  client.send(all);
  for (auto i = 0; i < 3; ++i) {
    CAPTURE(i);
    REQUIRE(client.receive_header().length == large);
    CHECK(client.receive(large) == pattern(large, static_cast<uint64_t>(i)));
  }
  CHECK(fixture.count(lm_count::stalled_transfers) == 0);
}

TEST_CASE("an answer that is due does not wait for the end of the PUT behind it") {
  node_fixture fixture;
  auto client = fixture.client();
  REQUIRE(client.put(key(1), to_bytes("value")));
  auto frames = get_and_torn_put();
  client.send(frames);
  CHECK(client.receive_header().length == 5);
  CHECK(client.receive(5) == to_bytes("value"));
  client.send(bytes(600));
  CHECK(client.exist(key(2)));
}

TEST_CASE("answers that are due arrive although the client ended in the middle of a PUT") {
  node_fixture fixture;
  auto client = fixture.client();
  REQUIRE(client.put(key(1), to_bytes("value")));
  auto frames = get_and_torn_put();
  client.send(frames);
  client.finish_sending();
  CHECK(client.receive_header().length == 5);
  CHECK(client.receive(5) == to_bytes("value"));
  CHECK(client.closed_by_server());
}

TEST_CASE("a PUT that waits for room holds up no value before it") {
  node_fixture fixture;
  auto client = fixture.client();
  REQUIRE(client.put(key(0), pattern(large, 0)));
  // Two writers of the largest size take the whole claim budget and stall.
  std::vector<lm_wire> writers;
  for (auto i = 0; i < 2; ++i) {
    writers.push_back(fixture.client());
    auto frame = raw_header{1, large, 5, 0, 0, {large, 0, 0, 0}, key(10 + i)}.encode();
    frame.resize(frame.size() + 1);
    writers.back().send(frame);
  }
  fixture.wait([&] { return fixture.storage().write_leases == 2; });
  auto frames = get_frame(0);
  auto put = raw_header{1, 1000, 5, 0, 0, {1000, 0, 0, 0}, key(20)}.encode();
  frames.insert(frames.end(), put.begin(), put.end());
  frames.resize(frames.size() + 1000);
  client.send(frames);
  REQUIRE(client.receive_header().length == large);
  CHECK(client.receive(large) == pattern(large, 0));
  // Those without progress give their room away while the PUT waits for it.
  CHECK(client.exist(key(20)));
}
