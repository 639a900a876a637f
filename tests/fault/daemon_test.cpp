#include "support/daemon.hpp"

#include "support/lm_wire.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <regex>

using namespace kvasir::test;
using namespace std::chrono_literals;

TEST_CASE("the line of readiness names what is served") {
  running_daemon both;
  CHECK(std::regex_match(
    both.ready_line(),
    std::regex{"kvasird ready lm=127\\.0\\.0\\.1:[0-9]+ mp=127\\.0\\.0\\.1:[0-9]+ "
               "http=127\\.0\\.0\\.1:[0-9]+ cluster=off"}));
  CHECK(both.lm_port() != 0);
  CHECK(both.http_port() != 0);
  running_daemon lm_only{{"--http-port", "off"}};
  CHECK(lm_only.ready_line().find(" http=off ") != std::string::npos);
  CHECK(line_count(lm_only.process().out()) == 1);
}

TEST_CASE("SIGTERM ends it with 0 although clients are connected") {
  running_daemon served;
  lm_wire idle{served.lm_port()};
  lm_wire busy{served.lm_port()};
  REQUIRE(busy.exist("m@1@0@1@half") == false);
  raw_header unfinished{1, 1000, 5, 0, 0, {1000, 0, 0, 0}, "m@1@0@2@half"};
  busy.send(unfinished.encode());
  busy.send(to_bytes("only the start"));
  auto silent = kvasir::connect_to("127.0.0.1", served.http_port(), 1000);
  REQUIRE(silent);
  auto before = std::chrono::steady_clock::now();
  auto ended = served.stop();
  CHECK(ended.exit_code == 0);
  CHECK(std::chrono::steady_clock::now() - before < 5s);
}

TEST_CASE("SIGINT ends it with 0") {
  running_daemon served;
  served.process().send(SIGINT);
  CHECK(served.process().wait().exit_code == 0);
}

TEST_CASE("a second signal does not wait for the drain") {
  running_daemon served;
  lm_wire busy{served.lm_port()};
  raw_header unfinished{1, 1000, 5, 0, 0, {1000, 0, 0, 0}, "m@1@0@2@half"};
  busy.send(unfinished.encode());
  busy.send(to_bytes("only the start"));
  std::this_thread::sleep_for(100ms);
  auto before = std::chrono::steady_clock::now();
  served.process().send(SIGTERM);
  std::this_thread::sleep_for(300ms);
  served.process().send(SIGTERM);
  CHECK(served.process().wait().exit_code == 0);
  CHECK(std::chrono::steady_clock::now() - before < 2s);
}

TEST_CASE("what is wrong with the settings is said in one line before anything listens") {
  const std::vector<std::vector<std::string>> cases{
    {"--eviction", "arc"},        {"--pool-size", "100"},   {"--mp-port", "65536"},
    {"--no-such-option", "1"},    {"--shm", "perhaps"},     {"--lm-port", "8080"},
    {"--config", "/nonexistent"}, {"localhost", "1", "mps"}};
  for (const auto& arguments : cases) {
    auto ended = run("kvasird", arguments);
    CHECK(ended.exit_code == 2);
    CHECK(ended.out.empty());
    CHECK_MESSAGE(line_count(ended.err) == 1, ended.err);
    CHECK(ended.err.rfind("kvasird: ", 0) == 0);
    CHECK(ended.took < 2s);
  }
  CHECK(run("kvasird", {}, {"KVASIR_POOLSIZE=1GiB"}).exit_code == 2);
}

TEST_CASE("what prevents the start is said in one line") {
  running_daemon first;
  auto taken = std::to_string(first.lm_port());
  const std::vector<std::vector<std::string>> cases{
    {"--lm-port", taken, "--http-port", "off"},
    {"--lm-port", "off", "--http-port", std::to_string(first.http_port())},
    {"--host", "no.such.host.invalid", "--lm-port", "0"},
    {"--lm-port", "0", "--http-port", "0", "--admin-token-file", "/nonexistent"},
    {"--lm-port", "0", "--http-port", "0", "--admin-token-file", "/dev/null"},
    {"--lm-port", "0", "--http-port", "0", "--pool-size", "10TiB", "--shm", "on"},
  };
  for (auto arguments : cases) {
    if (std::find(arguments.begin(), arguments.end(), "--pool-size") == arguments.end())
      arguments.insert(arguments.end(), {"--pool-size", "1MiB"});
    // Others' dead segments.
    arguments.insert(arguments.end(), {"--mp-port", "0", "--log-level", "error"});
    auto ended = run("kvasird", arguments);
    CHECK(ended.exit_code == 1);
    CHECK(ended.out.empty());
    CHECK_MESSAGE(line_count(ended.err) == 1, ended.err);
  }
}

TEST_CASE("odd pool sizes are normalised and told") {
  running_daemon odd{{"--pool-size", "104857601"}};
  CHECK(odd.log().find("104857600 of 104857601") != std::string::npos);
  CHECK(odd.metric("kvasir_pool_capacity_bytes") == 104857600);
  running_daemon tiny{{"--pool-size", "4096", "--shm", "off"}};
  CHECK(tiny.metric("kvasir_pool_capacity_bytes") == 4096);
  CHECK(lm_wire{tiny.lm_port()}.put("m@1@0@1@half", pattern(512, 1)));
}

TEST_CASE("starts as lmcache_server") {
  child_process server{"lmcache_server", {"127.0.0.1", "0", "cpu"}};
  auto deadline = std::chrono::steady_clock::now() + 20s;
  while (server.out().empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(2ms);
  CHECK(server.out().find("http=off") != std::string::npos);
  server.send(SIGTERM);
  CHECK(server.wait().exit_code == 0);
}

TEST_CASE("its end after a kill leaves nothing that the next start does not remove") {
  running_daemon victim;
  REQUIRE_FALSE(victim.segment_paths().empty());
  victim.kill();
  running_daemon next; // Or another of this user that starts meanwhile.
  CHECK(victim.segment_paths().empty());
}
