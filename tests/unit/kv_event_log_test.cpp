#include "actors/kv_event_log.hpp"

#include "support/simulation.hpp"

#include <doctest/doctest.h>

/// What subscribers are told of chunks that come and go.

using namespace kvasir;
using namespace kvasir::test;

namespace {

constexpr uint64_t incarnation = 77;
constexpr uint32_t chunk_tokens = 4;

using numbers = std::vector<uint64_t>;

mp::chunk_identity identity(uint8_t number) {
  mp::chunk_identity result{};
  result.hash.fill(std::byte{number});
  result.digest = number;
  return result;
}

std::string hash_of(uint8_t number) {
  return std::string(identity(number).hash.size(), static_cast<char>(number));
}

struct log_fixture {
  explicit log_fixture(event_log_options options = {.incarnation = incarnation})
    : log(sim.system().spawn<kv_event_log>(options)) {}
  ~log_fixture() { caf::anon_send_exit(log, caf::exit_reason::user_shutdown); }

  object_key key(uint8_t chunk, uint32_t rank = 0, const std::string& model = "m") const {
    return mp::chunk_key_prefix{world, 5, "", model}.key(identity(chunk), rank);
  }

  void send(auto what) { sim.enqueue(log, ++last_send, std::move(what)); }

  /// Chunks `first`..`last - 1` of a prompt; `first - 1` is their parent.
  void describe(uint8_t first, uint8_t last) {
    describe_chunks what;
    for (auto chunk = first; chunk < last; ++chunk) {
      what.keys.push_back(key(chunk));
      what.tokens.insert(what.tokens.end(), chunk_tokens, chunk);
    }
    if (first > 0)
      what.parent = key(first - 1);
    send(std::move(what));
    sim.run();
  }

  void change(uint8_t chunk, bool stored, uint32_t rank = 0, const std::string& model = "m") {
    send(objects_changed{{{key(chunk, rank, model), stored}}});
    sim.run();
  }

  void store(uint8_t chunk) {
    describe(chunk, chunk + 1);
    change(chunk, true);
  }

  kv_event_batch read(uint64_t cursor, uint32_t max_events = 1'000) {
    auto batch
      = sim.ask<kv_event_batch>(log, read_kv_events{1, "m", cursor, max_events, false});
    REQUIRE(batch);
    CHECK(batch->incarnation == incarnation);
    return *batch;
  }

  event_log_status status() {
    auto result = sim.ask<event_log_status>(log, get_event_log_status{});
    REQUIRE(result);
    return *result;
  }

  static numbers seqs(const kv_event_batch& batch) {
    numbers result;
    for (auto& event : batch.events)
      result.push_back(event.seq);
    return result;
  }

  uint32_t world = 1;
  uint64_t last_send = uint64_t{1} << 32;
  simulation sim;
  kv_event_log_actor log;
};

} // namespace

TEST_SUITE("KV event log") {
  TEST_CASE_FIXTURE(log_fixture, "stored chunks come with tokens and parent, removed without") {
    read(0);
    describe(0, 2);
    change(0, true);
    change(1, true);
    change(1, false);
    auto batch = read(0);
    CHECK_FALSE(batch.lost);
    CHECK(batch.next_cursor == 3);
    REQUIRE(seqs(batch) == numbers{0, 1, 2});
    CHECK(batch.events[0].stored);
    CHECK(batch.events[0].block_hash == hash_of(0));
    CHECK(batch.events[0].parent_block_hash.empty());
    CHECK(batch.events[0].tokens == std::vector<uint32_t>(chunk_tokens, 0));
    CHECK(batch.events[1].block_hash == hash_of(1));
    CHECK(batch.events[1].parent_block_hash == hash_of(0));
    CHECK(batch.events[1].tokens == std::vector<uint32_t>(chunk_tokens, 1));
    CHECK_FALSE(batch.events[2].stored);
    CHECK(batch.events[2].block_hash == hash_of(1));
    CHECK(batch.events[2].tokens.empty());
    CHECK(status().described_bytes == 0);
  }

  TEST_CASE_FIXTURE(log_fixture,
                    "a chunk is there with its last rank and gone with its first") {
    world = 3;
    read(0);
    describe(1, 2);
    for (uint32_t rank : {2, 0})
      change(1, true, rank);
    CHECK(read(0).events.empty());
    change(1, true, 1);
    CHECK(read(0).events.size() == 1);
    change(1, false, 2);
    CHECK(read(0).events.size() == 2);
    change(1, false, 0);
    CHECK(read(0).events.size() == 2);
    describe(1, 2);
    change(1, true, 0);
    change(1, true, 2);
    auto batch = read(0);
    REQUIRE(batch.events.size() == 3);
    CHECK(batch.events[2].stored);
    // Half a chunk that goes again was never there.
    describe(2, 3);
    change(2, true, 0);
    change(2, false, 0);
    CHECK(read(0).events.size() == 3);
  }

  TEST_CASE_FIXTURE(log_fixture, "a model's readers are told of that model") {
    read(0);
    store(1);
    change(1, false, 0, "another");
    change(1, false);
    auto batch = read(0);
    CHECK(seqs(batch) == numbers{0, 2});
    CHECK(batch.next_cursor == 3);
    CHECK_FALSE(batch.lost);
  }

  TEST_CASE_FIXTURE(log_fixture, "what happened before the first reader is a loss, told once") {
    SUBCASE("stored") {
      change(1, true);
    }
    SUBCASE("removed") {
      change(1, false);
    }
    auto batch = read(0);
    CHECK(batch.lost);
    CHECK(batch.events.empty());
    CHECK(batch.next_cursor == 1);
    CHECK_FALSE(read(batch.next_cursor).lost);
    store(2);
    CHECK(seqs(read(batch.next_cursor)) == numbers{1});
  }

  TEST_CASE_FIXTURE(log_fixture, "a cursor beyond the end counts another log's events") {
    read(0);
    store(1);
    auto batch = read(100);
    CHECK(batch.lost);
    CHECK(batch.next_cursor == 1);
    CHECK_FALSE(read(1).lost);
    // Also for one that would wait.
    auto waiting = sim.ask<kv_event_batch>(log, read_kv_events{2, "m", 100, 10, true});
    REQUIRE(waiting);
    CHECK(waiting->lost);
  }

  TEST_CASE("the history is bounded, and who is late is told") {
    for (auto by_bytes : {false, true}) {
      CAPTURE(by_bytes);
      event_log_options options{.incarnation = incarnation};
      (by_bytes ? options.max_bytes : options.max_events) = by_bytes ? 800 : 4;
      log_fixture fix{options};
      fix.read(0);
      for (uint8_t i = 0; i < 20; ++i)
        fix.store(i);
      auto now = fix.status();
      auto within = by_bytes ? now.kept_bytes <= 800 : now.kept_events == 4;
      CHECK(within);
      CHECK(now.kept_events > 0);
      CHECK(now.dropped == 20 - now.kept_events);
      CHECK(now.stored == 20);
      auto first_kept = 20 - now.kept_events;
      auto batch = fix.read(first_kept - 1);
      CHECK(batch.lost);
      CHECK(batch.events.size() == now.kept_events);
      CHECK(batch.next_cursor == 20);
      CHECK_FALSE(fix.read(first_kept).lost);
    }
  }

  TEST_CASE("what is described and not stored is bounded") {
    log_fixture fix{{.incarnation = incarnation, .max_described_bytes = 800}};
    fix.read(0);
    for (uint8_t i = 0; i < 20; ++i)
      fix.describe(i, i + 1);
    CHECK(fix.status().described_bytes <= 800);
    CHECK(fix.status().described_bytes > 400);
    fix.change(0, true);
    CHECK(fix.read(0).events.empty());
    CHECK(fix.status().undescribed == 1);
    // The newest are known; describing again does not count twice.
    for (auto i = 0; i < 20; ++i)
      fix.describe(19, 20);
    fix.change(19, true);
    fix.change(18, true);
    CHECK(fix.read(0).events.size() == 2);
  }

  TEST_CASE("too many chunks on some of their ranks: all is lost, and told") {
    log_fixture fix{{.incarnation = incarnation, .max_partial = 4}};
    fix.world = 2;
    fix.read(0);
    fix.describe(9, 10);
    fix.change(9, true, 0);
    fix.change(9, true, 1);
    CHECK(fix.read(0).events.size() == 1);
    for (uint8_t i = 0; i < 5; ++i)
      fix.change(i, true, 0);
    auto batch = fix.read(1);
    CHECK(batch.lost);
    CHECK(batch.events.empty());
  }

  TEST_CASE_FIXTURE(log_fixture, "no more events than asked for, the rest next time") {
    read(0);
    for (uint8_t i = 0; i < 5; ++i)
      store(i);
    auto batch = read(0, 2);
    CHECK(seqs(batch) == numbers{0, 1});
    CHECK(seqs(read(batch.next_cursor, 2)) == numbers{2, 3});
    CHECK(seqs(read(4, 2)) == numbers{4});
  }

  TEST_CASE_FIXTURE(log_fixture, "a reader waits for news of its model") {
    read(0);
    auto waiting = sim.start<kv_event_batch>(log, read_kv_events{1, "m", 0, 10, true});
    sim.run();
    CHECK(waiting.pending());
    CHECK(status().readers_waiting == 1);
    change(1, false, 0, "another");
    CHECK(waiting.pending());
    store(2);
    REQUIRE(waiting.get());
    CHECK(seqs(*waiting.get()) == numbers{1});
    CHECK(waiting.count() == 1);
    CHECK(status().readers_waiting == 0);
  }

  TEST_CASE_FIXTURE(log_fixture, "a reader's next read, or its end, ends the one that waits") {
    read(0);
    auto first = sim.start<kv_event_batch>(log, read_kv_events{1, "m", 0, 10, true});
    auto other = sim.start<kv_event_batch>(log, read_kv_events{2, "m", 0, 10, true});
    auto second = sim.start<kv_event_batch>(log, read_kv_events{1, "m", 0, 10, true});
    sim.run();
    CHECK(first.get().error() == errc::not_reserved);
    CHECK(second.pending());
    send(end_kv_reader{1});
    sim.run();
    CHECK(second.get().error() == errc::not_reserved);
    CHECK(other.pending());
    caf::anon_send_exit(log, caf::exit_reason::user_shutdown);
    sim.run();
    CHECK(other.get().error() == errc::peer_unreachable);
  }

  TEST_CASE("there is an end to how many readers wait") {
    log_fixture fix{{.incarnation = incarnation, .max_readers = 2}};
    std::vector<awaited<kv_event_batch>> waiting;
    for (uint64_t reader = 1; reader <= 3; ++reader)
      waiting.push_back(
        fix.sim.start<kv_event_batch>(fix.log, read_kv_events{reader, "m", 0, 10, true}));
    fix.sim.run();
    CHECK(waiting[0].pending());
    CHECK(waiting[1].pending());
    CHECK(waiting[2].get().error() == errc::busy);
  }
}
