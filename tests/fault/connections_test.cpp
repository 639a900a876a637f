// Connections that come and go, stop reading, or are more than there are file descriptors.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

TEST_CASE("5000 connections, 200 half requests and 50 killed readers leave nothing") {
  running_daemon served{{"--shm", "off"}};
  wait_for_growth(served);
  lm_wire client{served.lm_port()};
  auto value = value_of(1, 8 * mib);
  REQUIRE(client.put("large@1@0@1@half", value));
  REQUIRE(client.put("m@1@0@1@half", to_bytes("here")));
  // One of each kind first: what is allocated once is no leak.
  { CHECK(lm_wire{served.lm_port()}.exist("m@1@0@1@half")); }
  wait_until([&] { return status_of(served)["lm"]["open_connections"] == 1; });
  auto before = stats_of(served.process().pid());

  for (auto i = 0; i < 5000; ++i) {
    lm_wire one{served.lm_port()};
    REQUIRE(one.exist("m@1@0@1@half"));
  }
  for (auto i = 0; i < 500; ++i)
    REQUIRE(served.get("/healthz").status == 200);
  std::vector<lm_wire> half;
  for (auto i = 0; i < 200; ++i) {
    half.emplace_back(served.lm_port());
    auto frame = get_header("m@1@0@1@half").encode();
    half.back().send(std::span{frame}.first(100));
  }
  CHECK(client.exist("m@1@0@1@half"));
  half.clear();
  for (auto i = 0; i < 50; ++i) {
    lm_wire reader{served.lm_port()};
    reader.send(get_header("large@1@0@1@half").encode());
    REQUIRE(reader.receive(100'000).size() == 100'000);
    reader.reset();
  }

  wait_until([&] { return status_of(served)["lm"]["open_connections"] == 1; });
  wait_until([&] { return at_rest(served); });
  auto after = stats_of(served.process().pid());
  CHECK(after.threads == before.threads);
  CHECK(after.files <= before.files + 2);
  if (!sanitized)
    CHECK(after.resident_bytes() <= before.resident_bytes() + 8 * mib);
  CHECK(client.get("large@1@0@1@half") == value);
}

TEST_CASE("a client that does not read delays neither 19 others nor the end") {
  running_daemon served;
  wait_for_growth(served);
  {
    lm_wire filler{served.lm_port()};
    for (uint64_t i = 0; i < 16; ++i)
      REQUIRE(filler.put(numbered_key("due", i), value_of(i, mib)));
  }
  fault_client wedged{served.lm_port()};
  bytes requests;
  for (uint64_t i = 0; i < 2000; ++i) {
    auto frame = get_header(numbered_key("due", i % 16)).encode();
    requests.insert(requests.end(), frame.begin(), frame.end());
  }
  std::span<const std::byte> unsent{requests};
  // The server stops reading as well once enough is due: the rest waits in the sockets.
  wait_until([&] {
    unsent = unsent.subspan(wedged.send_some(unsent));
    return unsent.empty() || status_of(served)["storage"]["read_leases"] >= 10;
  });

  std::atomic<int> wrong{0};
  std::atomic<int> done{0};
  std::vector<std::thread> others;
  for (uint64_t c = 0; c < 19; ++c)
    others.emplace_back([&, c] {
      fault_client client{served.lm_port()};
      bytes found;
      for (uint64_t i = 0; i < 50; ++i) {
        auto key = numbered_key("work", c * 1000 + i);
        if (!client.send_put(key, value_of(c * 1000 + i, 20'000)))
          break;
        if (client.get(key, found) != fault_client::found::hit
            || found != value_of(c * 1000 + i, 20'000))
          ++wrong;
        ++done;
      }
    });
  for (auto& thread : others)
    thread.join();
  CHECK(wrong == 0);
  CHECK(done == 19 * 50);
  CHECK(status_of(served)["storage"]["read_leases"] >= 1); // It is still wedged.

  auto before = std::chrono::steady_clock::now();
  auto ended = served.stop();
  auto took = std::chrono::steady_clock::now() - before;
  CHECK(ended.exit_code == 0);
  CHECK(took < 15s); // Five by design.
  MESSAGE(
    "ended after ms: " << std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
}

TEST_CASE("more connections than file descriptors: the others work, accepting resumes") {
  running_daemon served{
    {"-c", "ulimit -n 80; exec \"$0\" \"$@\"", std::string{KVASIR_BIN_DIR} + "/kvasird"},
    {},
    "/bin/sh"};
  wait_for_growth(served);
  lm_wire first{served.lm_port()};
  REQUIRE(first.put("m@1@0@1@half", to_bytes("here")));
  // Each is served, closed at once, or waits in the backlog.
  std::vector<fault_client> crowd;
  for (auto i = 0; i < 150; ++i) {
    crowd.emplace_back(served.lm_port());
    REQUIRE(crowd.back());
    crowd.back().send(exist_header("m@1@0@1@half").encode());
  }
  wait_until([&] {
    REQUIRE(served.process().running());
    return served.log().find("cannot accept a connection") != std::string::npos;
  });
  CHECK(first.get("m@1@0@1@half") == to_bytes("here"));
  size_t answered = 0;
  for (auto& one : crowd)
    answered += one.receive_header() ? 1 : 0;
  CHECK(answered >= 20);
  CHECK(answered < 150);
  CHECK(first.get("m@1@0@1@half") == to_bytes("here"));

  crowd.clear();
  wait_until([&] { return fault_client{served.lm_port()}.exist("m@1@0@1@half") == true; });
  wait_until([&] { return served.get("/healthz").status == 200; });
  CHECK(served.metric("kvasir_lm_connections_refused_total") > 0);
  CHECK(stats_of(served.process().pid()).files < 80);
  CHECK(served.stop().exit_code == 0);
}
