// What a client of the lm:// port sees, and what one client can do to another.
#include "support/node_fixture.hpp"

#include <poll.h>

using namespace kvasir;
using namespace kvasir::test;

namespace {

std::string numbered(const char* stem, size_t number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s@1@0@%zx@half", stem, number + 1);
  return text.data();
}

/// A header that announces `length` bytes of opaque value.
raw_header put_header(const std::string& key, int32_t length) {
  return {1, length, 5, 0, 0, {length, 0, 0, 0}, key};
}

raw_header get_header(const std::string& key) {
  return {2, 0, 1, 2, 0, {}, key};
}

bool readable(int fd, int timeout_ms) {
  pollfd waiting{fd, POLLIN, 0};
  return poll(&waiting, 1, timeout_ms) > 0;
}

} // namespace

TEST_SUITE("requests") {
  TEST_CASE("a value comes back byte for byte at sizes around every buffer") {
    node_fixture fixture;
    auto client = fixture.client();
    for (size_t size : {0u,      1u,      35u,     36u,      37u,      185u,    186u,
                        187u,    4095u,   4096u,   4097u,    16383u,   16384u,  16385u,
                        262143u, 262144u, 262145u, 2097151u, 2097153u, 9437184u}) {
      CAPTURE(size);
      auto value = pattern(size, size);
      CHECK(client.put(numbered("size", size), value));
      CHECK(client.get(numbered("size", size)) == value);
    }
  }

  TEST_CASE("a pipeline of every request is answered in order") {
    node_fixture fixture;
    auto client = fixture.client();
    auto value = pattern(100'000, 1);
    bytes all;
    auto add = [&](const bytes& frame) {
      all.insert(all.end(), frame.begin(), frame.end());
    };
    for (size_t i = 0; i < 40; ++i) {
      add(put_header(numbered("pipe", i), 100'000).encode());
      add(value);
      add(get_header(numbered("pipe", i)).encode());
      add(raw_header{3, 0, 1, 2, 0, {}, numbered("pipe", i)}.encode());
      add(raw_header{}.encode());
      add(get_header(numbered("absent", i)).encode());
    }
    // The replies are larger than any socket buffer: sending must not wait for them.
    std::thread sender{[&] {
      client.send(all);
    }};
    for (size_t i = 0; i < 40; ++i) {
      CAPTURE(i);
      CHECK(client.receive_header().length == 100'000);
      CHECK(client.receive(100'000) == value);
      CHECK(client.receive_header().code == lm::return_code::success);
      CHECK(client.receive_header().code == lm::return_code::success);
      CHECK(client.receive_header().code == lm::return_code::fail);
    }
    sender.join();
    fixture.wait([&] { return fixture.storage().read_leases == 0; });
  }

  TEST_CASE("a header may come one byte at a time, a value too") {
    node_fixture fixture;
    auto client = fixture.client();
    auto frame = put_header("slow@1@0@1@half", 300).encode();
    auto value = pattern(300, 3);
    frame.insert(frame.end(), value.begin(), value.end());
    for (auto& b : frame)
      client.send({&b, 1});
    CHECK(client.get("slow@1@0@1@half") == value);
  }

  TEST_CASE("many requests in one read are few messages to the manager") {
    node_fixture fixture{64 * node_fixture::mib, 1};
    auto client = fixture.client();
    REQUIRE(client.put("m@1@0@1@half", to_bytes("x")));
    auto before = fixture.served->status().io_requests;
    bytes burst;
    for (auto i = 0; i < 64; ++i) {
      auto frame = raw_header{3, 0, 1, 2, 0, {}, "m@1@0@1@half"}.encode();
      burst.insert(burst.end(), frame.begin(), frame.end());
    }
    client.send(burst);
    CHECK(client.receive(64 * lm::server_header_size).size() == 64 * lm::server_header_size);
    CHECK(fixture.served->status().io_requests - before <= 16);
  }

  TEST_CASE("bad requests are answered and the connection goes on") {
    node_fixture fixture;
    auto client = fixture.client();
    const std::vector<raw_header> bad{
      {2, 0, 9, 2, 0, {}, "m@1@0@1@half"},         {2, 0, -1, 2, 0, {}, "m@1@0@1@half"},
      {2, 0, 1, 9, 0, {}, "m@1@0@1@half"},         {2, 0, 1, -1, 0, {}, "m@1@0@1@half"},
      {2, 0, 1, 2, 3, {}, "m@1@0@1@half"},         {3, 0, 1, 2, -1, {}, "m@1@0@1@half"},
      {3, 0, 1, 2, 0, {}, "\xff\xfe@1@0@1@half"},  {2, 0, 1, 2, 0, {}, std::string(5, '\0')},
      {3, 0, INT32_MAX, 2, 0, {}, "m@1@0@1@half"}, {3, 0, 1, INT32_MIN, 0, {}, "m@1@0@1@half"},
    };
    for (auto& header : bad) {
      client.send(header.encode());
      CHECK(client.receive_header().code == lm::return_code::fail);
    }
    CHECK(fixture.count(lm_count::protocol_errors) == bad.size());
    // A bad PUT is not answered, but its value is taken out of the stream.
    auto put = raw_header{1, 5000, 9, 2, 0, {}, "m@1@0@1@half"}.encode();
    put.resize(put.size() + 5000);
    client.send(put);
    CHECK_FALSE(client.exist("m@1@0@1@half"));
    CHECK(client.healthy());
  }

  TEST_CASE("keys of other forms: layers, negative hashes, tags, raw ones") {
    node_fixture fixture;
    auto client = fixture.client();
    for (auto key :
         {"m/x@1@0@7@half@3", "m@1@0@-5d1b8de6da1b6d09@half", "m@1@0@7@half@salt%abc"}) {
      CAPTURE(key);
      CHECK_FALSE(client.exist(key));
      CHECK(client.put(key, to_bytes(key)));
      CHECK(client.get(key) == to_bytes(key));
    }
    REQUIRE(client.put("m@1@0@00ff@half", to_bytes("v")));
    CHECK(client.exist("m@1@0@ff@half"));
    CHECK(client.exist("m@1@0@FF@half"));

    for (auto key : {"m@v2@1@0@7@half", "nokey", "m@1@0@7@fp4", "m@1@0@7@half@tag"})
      CHECK_FALSE(client.exist(key));
    CHECK(fixture.count(lm_count::raw_keys) == 4);
    CHECK_FALSE(client.exist("\xff@1@0@7@half"));
    CHECK(fixture.count(lm_count::protocol_errors) == 1);
    CHECK(client.put("nokey", to_bytes("raw")));
    CHECK(client.get("nokey") == to_bytes("raw"));
  }

  TEST_CASE("a value longer than its shape and dtype is never a hit") {
    node_fixture fixture;
    auto client = fixture.client();
    auto frame = raw_header{1, 600, 1, 3, 0, {2, 1, 16, 8}, "multi@1@0@1@bfloat16"}.encode();
    frame.resize(frame.size() + 600);
    client.send(frame); // 512 bytes by shape: the rest would be of further KV groups.
    CHECK_FALSE(client.exist("multi@1@0@1@bfloat16"));
    CHECK_FALSE(client.get("multi@1@0@1@bfloat16"));
    CHECK(fixture.count(lm_count::dropped_layout_mismatch) == 1);
  }
}

TEST_SUITE("torn and refused writes") {
  TEST_CASE("a PUT that is cut off never happened, and the old value stays") {
    node_fixture fixture;
    auto client = fixture.client();
    REQUIRE(client.put("old@1@0@1@half", to_bytes("old good")));
    for (auto key : {"new@1@0@1@half", "old@1@0@1@half"}) {
      auto torn = fixture.client();
      auto frame = put_header(key, 1000).encode();
      frame.resize(frame.size() + 400);
      torn.send(frame);
      torn.close();
    }
    fixture.wait([&] { return fixture.count(lm_count::torn_puts) == 2; });
    CHECK_FALSE(client.exist("new@1@0@1@half"));
    CHECK_FALSE(client.get("new@1@0@1@half"));
    CHECK(client.get("old@1@0@1@half") == to_bytes("old good"));
    CHECK(fixture.storage().write_leases == 0);
    CHECK(fixture.storage().claimed_bytes == 0);
  }

  TEST_CASE("a PUT above the largest size is drained, counted, and the connection lives") {
    node_fixture fixture; // The largest object is 16 MiB.
    auto client = fixture.client();
    auto limit = 16 * node_fixture::mib;
    CHECK(client.put("fits@1@0@1@half", pattern(limit, 1)));
    CHECK_FALSE(client.put("large@1@0@1@half", pattern(limit + 1, 2)));
    CHECK(fixture.count(lm_count::dropped_too_large) == 1);
    CHECK(client.exist("fits@1@0@1@half"));
  }

  TEST_CASE("a length of two gigabytes without the bytes costs nothing") {
    node_fixture fixture;
    auto client = fixture.client();
    client.send(put_header("huge@1@0@1@half", INT32_MAX).encode());
    client.send(pattern(100, 1));
    client.reset();
    auto other = fixture.client();
    CHECK(other.healthy());
    CHECK(fixture.storage().used_bytes == 0);
  }

  TEST_CASE("lost framing ends the connection at once, and no other") {
    node_fixture fixture;
    auto other = fixture.client();
    REQUIRE(other.healthy());
    for (auto header :
         {put_header("m@1@0@1@half", -1), put_header("m@1@0@1@half", INT32_MIN)}) {
      auto client = fixture.client();
      client.send(header.encode());
      CHECK(client.closed_by_server());
    }
    for (int32_t command : {0, 6, -1, INT32_MAX}) {
      CAPTURE(command);
      auto client = fixture.client();
      REQUIRE(client.healthy());
      client.send(raw_header{.command = command}.encode());
      CHECK(client.closed_by_server());
    }
    CHECK(other.healthy());
  }

  TEST_CASE("answers due before the framing is lost still arrive") {
    node_fixture fixture;
    auto client = fixture.client();
    auto frames = raw_header{}.encode();
    auto bad = raw_header{.command = 77}.encode();
    frames.insert(frames.end(), bad.begin(), bad.end());
    client.send(frames);
    CHECK(client.receive_header().code == lm::return_code::success);
    CHECK(client.closed_by_server());
  }

  TEST_CASE("a value that changed in memory is a counted miss, once") {
    node_fixture fixture;
    auto client = fixture.client();
    REQUIRE(client.put("flip@1@0@1@half", pattern(50'000, 1)));
    // The first object of an empty pool lies at its start.
    fixture.served->pool().data()[12'345] ^= std::byte{1};
    CHECK_FALSE(client.get("flip@1@0@1@half"));
    CHECK_FALSE(client.exist("flip@1@0@1@half"));
    CHECK(fixture.count(lm_count::checksum_mismatches) == 1);
    CHECK(fixture.storage().corrupt_objects == 1);
    CHECK(fixture.storage().used_bytes == 0);
  }
}

TEST_SUITE("one client and the others") {
  TEST_CASE("headers without a value lose no resident object") {
    node_fixture fixture;
    auto client = fixture.client();
    for (size_t i = 0; i < 56; ++i)
      REQUIRE(client.put(numbered("resident", i), pattern(node_fixture::mib, i)));
    std::vector<lm_wire> silent;
    for (size_t i = 0; i < 64; ++i) {
      silent.push_back(fixture.client());
      silent.back().send(put_header(numbered("silent", i), 16 << 20).encode());
    }
    fixture.wait([&] { return fixture.count(lm_count::puts) == 56 + 64; });
    for (size_t i = 0; i < 56; ++i)
      CHECK(client.exist(numbered("resident", i)));
    CHECK(fixture.storage().evicted_objects == 0);
    CHECK(fixture.storage().claimed_bytes == 0);
  }

  TEST_CASE("writers that begin and stall cannot take the whole cache") {
    node_fixture fixture;
    auto client = fixture.client();
    for (size_t i = 0; i < 56; ++i)
      REQUIRE(client.put(numbered("resident", i), pattern(node_fixture::mib, i)));
    std::vector<lm_wire> stalled;
    for (size_t i = 0; i < 24; ++i) {
      stalled.push_back(fixture.client());
      auto frame = put_header(numbered("stalled", i), 8 << 20).encode();
      frame.resize(frame.size() + 1);
      stalled.back().send(frame);
    }
    fixture.wait([&] { return fixture.count(lm_count::puts) == 56 + 24; });
    CHECK(fixture.storage().claimed_bytes <= 32 * node_fixture::mib);
    // A PUT that needs room gets it from those without progress, who keep their connections.
    CHECK(client.put("late@1@0@1@half", pattern(8 * node_fixture::mib, 7)));
    CHECK(fixture.count(lm_count::dropped_stalled) >= 1);
    stalled.front().send(bytes((8 << 20) - 1));
    CHECK(stalled.front().healthy());
    CHECK_FALSE(stalled.front().exist(numbered("stalled", 0)));
  }

  TEST_CASE("readers that stall do not stop eviction") {
    node_fixture fixture;
    auto client = fixture.client();
    for (size_t i = 0; i < 14; ++i)
      REQUIRE(client.put(numbered("old", i), pattern(4 * node_fixture::mib, i)));
    std::vector<lm_wire> stalled;
    for (size_t i = 0; i < 64; ++i) {
      stalled.push_back(fixture.client());
      stalled.back().send(get_header(numbered("old", i % 14)).encode());
    }
    fixture.wait([&] { return fixture.storage().read_leases > 0; });
    for (size_t i = 0; i < 40; ++i) {
      CAPTURE(i);
      REQUIRE(client.put(numbered("new", i), pattern(4 * node_fixture::mib, i)));
    }
    CHECK(client.get(numbered("new", 39)) == pattern(4 * node_fixture::mib, 39));
  }

  TEST_CASE("a client frozen in the middle of a PUT delays nobody") {
    node_fixture fixture;
    auto frozen = fixture.client();
    auto frame = put_header("frozen@1@0@1@half", 16 << 20).encode();
    frame.resize(frame.size() + 1000);
    frozen.send(frame);
    fixture.wait([&] { return fixture.storage().write_leases == 1; });
    auto client = fixture.client();
    for (size_t i = 0; i < 100; ++i)
      REQUIRE(client.put(numbered("busy", i), pattern(node_fixture::mib, i)));
    CHECK(client.get(numbered("busy", 99)) == pattern(node_fixture::mib, 99));
    CHECK(fixture.count(lm_count::stalled_transfers) == 0); // Nobody had to wait for it.
    // It thaws and finishes.
    frozen.send(bytes((16 << 20) - 1000));
    CHECK(frozen.exist("frozen@1@0@1@half"));
  }

  TEST_CASE("readers get whole values while the key is replaced, removed and evicted") {
    node_fixture fixture{32 * node_fixture::mib};
    constexpr size_t size = 1 << 20;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (auto r = 0; r < 3; ++r)
      readers.emplace_back([&] {
        auto client = fixture.client();
        while (!stop) {
          auto value = client.get("hot@1@0@1@half");
          if (!value)
            continue;
          auto same = std::all_of(value->begin(), value->end(),
                                  [&](std::byte b) { return b == value->front(); });
          if (!same || value->size() != size)
            ++wrong;
        }
      });
    auto writer = fixture.client();
    for (size_t i = 0; i < 500; ++i) {
      writer.send_put("hot@1@0@1@half", bytes(size, static_cast<std::byte>(i)));
      writer.send_put(numbered("filler", i), bytes(size, std::byte{0xee}));
    }
    CHECK(writer.healthy());
    stop = true;
    for (auto& reader : readers)
      reader.join();
    CHECK(wrong == 0);
    CHECK(fixture.storage().evicted_objects > 0);
    fixture.wait([&] { return fixture.storage().read_leases == 0; });
  }

  TEST_CASE("300 idle connections cost the busy ones nothing but memory") {
    node_fixture fixture;
    std::vector<lm_wire> idle;
    for (auto i = 0; i < 300; ++i)
      idle.push_back(fixture.client());
    std::vector<std::thread> busy;
    std::atomic<int> bad{0};
    for (size_t b = 0; b < 8; ++b)
      busy.emplace_back([&, b] {
        auto client = fixture.client();
        for (size_t i = 0; i < 50; ++i) {
          auto key = numbered("busy", b * 100 + i);
          if (!client.put(key, pattern(64 << 10, i)) || client.get(key) != pattern(64 << 10, i))
            ++bad;
        }
      });
    for (auto& thread : busy)
      thread.join();
    CHECK(bad == 0);
    CHECK(fixture.served->status().lm.open_connections >= 300);
    for (auto& client : idle)
      CHECK(client.healthy());
  }

  TEST_CASE("a connection above the limit is closed at once and counted") {
    node_config config;
    config.pool_bytes = 16 * node_fixture::mib;
    config.max_connections = 4;
    node_fixture fixture{config};
    std::vector<lm_wire> served;
    for (auto i = 0; i < 4; ++i) {
      served.push_back(fixture.client());
      REQUIRE(served.back().healthy());
    }
    auto extra = fixture.client();
    CHECK(extra.closed_by_server());
    CHECK(fixture.count(lm_count::connections_refused) == 1);
    CHECK(served.front().healthy());
  }
}

TEST_SUITE("other protocols") {
  TEST_CASE("bytes of another protocol are refused as soon as they are recognised") {
    node_fixture fixture;
    auto zmtp = std::string{"\xff\0\0\0\0\0\0\0\1\x7f", 10};
    for (auto& greeting : {std::string{"GET / HTTP/1.1\r\n"}, zmtp, std::string{"*1\r\n$4\r\n"},
                           std::string{"\x16\x03\x01\x02", 4}, std::string{"rubbish"}}) {
      CAPTURE(greeting);
      auto client = fixture.client();
      client.send(to_bytes(greeting));
      CHECK(client.closed_by_server());
    }
    CHECK(fixture.count(lm_count::wrong_protocol) == 5);
    CHECK(fixture.client().healthy());
  }
}

TEST_SUITE("hand-over") {
  TEST_CASE("over 100 000 requests nobody is woken up and nothing is handed over") {
    node_fixture fixture{64 * node_fixture::mib, 1};
    auto client = fixture.client();
    REQUIRE(client.put("m@1@0@1@half", pattern(1000, 1)));
    auto before = fixture.served->status();
    bytes round;
    auto add = [&](const bytes& more) {
      round.insert(round.end(), more.begin(), more.end());
    };
    add(put_header("m@1@0@1@half", 1000).encode());
    add(pattern(1000, 2));
    add(raw_header{3, 0, 1, 2, 0, {}, "m@1@0@1@half"}.encode());
    add(get_header("m@1@0@1@half").encode());
    add(get_header("absent@1@0@1@half").encode());
    const size_t answer = 3 * lm::server_header_size + 1000;
    for (auto i = 0; i < 25'000; ++i) {
      client.send(round);
      REQUIRE(client.receive(answer).size() == answer);
    }
    auto after = fixture.served->status();
    CHECK(after.lm.counters[size_t(lm_count::gets)] - before.lm.counters[size_t(lm_count::gets)]
          == 50'000);
    CHECK(after.io_eventfd_writes == before.io_eventfd_writes);
    CHECK(after.io_scheduler_enqueues == before.io_scheduler_enqueues);
    CHECK(after.io_foreign_replies == before.io_foreign_replies);
    CHECK(after.io_requests - before.io_requests >= 100'000);
  }
}

TEST_SUITE("drain") {
  TEST_CASE("stopping lets a request under way finish and closes idle connections") {
    node_fixture fixture;
    auto idle = fixture.client();
    REQUIRE(idle.healthy());
    auto busy = fixture.client();
    auto frame = put_header("drain@1@0@1@half", 100'000).encode();
    frame.resize(frame.size() + 50'000);
    busy.send(frame);
    fixture.wait([&] { return fixture.storage().write_leases == 1; });
    std::thread stopping{[&] {
      fixture.served->stop(std::chrono::seconds{20});
    }};
    CHECK(idle.closed_by_server());
    CHECK_FALSE(readable(busy.fd(), 0));
    busy.send(bytes(50'000));
    CHECK(busy.closed_by_server());
    stopping.join();
  }
}
