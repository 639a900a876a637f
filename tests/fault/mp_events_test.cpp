// Streams of KV events: who may have how many, and how they end.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;

namespace {

/// The pushes of one subscription, credits given by hand.
class event_stream {
public:
  event_stream(mp_client& client, uint64_t instance, uint64_t cursor = 0)
    : client_(client),
      uid_(client.ask("subscribe_kv_events",
                      {mp_client::packed(instance), mp_client::packed("m"),
                       mp_client::packed(cursor), mp_client::packed(64)})) {}

  /// The next push, or `nothing` at the end of the stream.
  mp_reply next() { return client_.answer(uid_); }
  bool ended() { return next().what == mp_reply::kind::nothing; }
  void say(const std::string& word) { client_.send({uid_, "", word}); }

private:
  mp_client& client_;
  std::string uid_;
};

} // namespace

TEST_CASE("a stream tells what is stored and what goes") {
  mp_daemon served;
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  event_stream stream{client, 1};
  auto first = stream.next();
  REQUIRE(first.what == mp_reply::kind::value);
  CHECK(first.value.at("enabled") == true);
  CHECK(first.value.at("lost") == false);
  CHECK(first.value.at("events").empty());
  stream.say("ack");
  chunk_range range{.prompt = 1, .last = 1};
  REQUIRE(client.store(range));
  auto stored = stream.next().value;
  REQUIRE(stored.at("events").size() == 1);
  CHECK(stored.at("events")[0].at("kind") == "stored");
  CHECK(stored.at("events")[0].at("token_ids") == range.tokens());
  CHECK(stored.at("incarnation") == first.value.at("incarnation"));
  client.end_session("r");
  served.wait_for_rest();
  stream.say("ack");
  CHECK(client.call("clear", {true}));
  auto gone = stream.next().value;
  REQUIRE(gone.at("events").size() == 1);
  CHECK(gone.at("events")[0].at("kind") == "removed");
  CHECK(gone.at("events")[0].at("block_hashes") == stored.at("events")[0].at("block_hashes"));
  stream.say("cancel");
  CHECK(stream.ended());
}

TEST_CASE("a new stream of an instance ends its former one") {
  mp_daemon served;
  mp_client client{served.mp_port()};
  event_stream first{client, 1};
  CHECK(first.next().value.at("enabled") == true);
  event_stream other{client, 2};
  CHECK(other.next().value.at("enabled") == true);
  event_stream second{client, 1};
  CHECK(first.ended());
  CHECK(second.next().value.at("enabled") == true);
  other.say("cancel");
  CHECK(other.ended());
}

TEST_CASE("a client has so many streams, another one has its own") {
  mp_daemon served;
  mp_client greedy{served.mp_port()};
  constexpr uint64_t limit = 16;
  for (uint64_t i = 0; i < limit; ++i)
    CHECK(event_stream{greedy, i}.next().value.at("enabled") == true);
  event_stream refused{greedy, limit};
  CHECK(refused.next().value.at("enabled") == false);
  CHECK(refused.ended());
  mp_client modest{served.mp_port()};
  CHECK(event_stream{modest, 100}.next().value.at("enabled") == true);
  CHECK(served.mp("streams") == limit + 1);
  CHECK(served.mp("streams_refused") == 1);
  CHECK(greedy.ping());
}

TEST_CASE("a late cursor, and one of another log, are told of the loss") {
  mp_daemon served{{"--event-history", "2"}};
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  CHECK(event_stream{client, 1}.next().value.at("lost") == false);
  REQUIRE(client.store({.prompt = 1, .last = 5}));
  CHECK(event_stream{client, 2}.next().value.at("lost") == true);
  auto beyond = event_stream{client, 3, 1'000}.next().value;
  CHECK(beyond.at("lost") == true);
  CHECK(beyond.at("next_cursor") == 5);
  CHECK(event_stream{client, 4, 3}.next().value.at("lost") == false);
  auto metrics = served.get("/metrics").body;
  CHECK(metrics.find("\nkvasir_events_kept 2\n") != std::string::npos);
  CHECK(metrics.find("\nkvasir_events_dropped_total 3\n") != std::string::npos);
}
