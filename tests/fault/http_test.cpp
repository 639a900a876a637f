#include "support/daemon.hpp"
#include "support/lm_wire.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <regex>

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

constexpr auto http_limit = 1s;

const bytes zmtp_greeting = [] {
  bytes result(64);
  result[0] = std::byte{0xff};
  result[8] = std::byte{1};
  result[9] = std::byte{0x7f};
  result[10] = std::byte{3};
  return result;
}();

/// Sends `start` to `port`. @returns how long the server took to close.
std::chrono::milliseconds time_to_close(uint16_t port, const bytes& start) {
  lm_wire stranger{port};
  auto before = std::chrono::steady_clock::now();
  stranger.send(start);
  while (!stranger.closed_by_server())
    continue;
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now()
                                                               - before);
}

/// The lines that say how much of something there was, without those that a scrape may change.
std::string samples(const std::string& metrics) {
  std::istringstream lines{metrics};
  std::string result;
  for (std::string line; std::getline(lines, line);)
    if (line[0] != '#')
      result += line + "\n";
  return result;
}

std::string temporary_token(const std::string& text) {
  std::string path = "/tmp/kvasir_token_XXXXXX";
  close(mkstemp(path.data()));
  std::ofstream{path} << text;
  return path;
}

} // namespace

TEST_CASE("clients of another protocol are closed within a second, counted and named") {
  running_daemon served;
  auto lm_header = raw_header{}.encode();
  auto request = to_bytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  auto tls_hello = to_bytes(std::string{"\x16\x03\x01\x02\x00\x01\x00\x01", 8});
  auto redis = to_bytes("*1\r\n$4\r\nPING\r\n");

  CHECK(time_to_close(served.lm_port(), request) < http_limit);
  CHECK(time_to_close(served.lm_port(), zmtp_greeting) < http_limit);
  CHECK(served.metric("kvasir_lm_wrong_protocol_total") == 2);

  for (const auto& stranger : {lm_header, zmtp_greeting, tls_hello, redis})
    CHECK(time_to_close(served.http_port(), stranger) < http_limit);
  CHECK(served.metric("kvasir_http_wrong_protocol_total") == 4);

  auto log = served.log();
  for (auto name : {"protocol=lm", "protocol=zmtp", "protocol=tls", "protocol=resp"})
    CHECK_MESSAGE(log.find(name) != std::string::npos, name);
  CHECK(log.find(std::to_string(served.lm_port())) != std::string::npos);
  CHECK(served.get("/healthz").status == 200);
  CHECK(served.stop().exit_code == 0);
}

TEST_CASE("silent and slow HTTP clients do not keep others waiting") {
  running_daemon served;
  std::vector<std::unique_ptr<lm_wire>> silent;
  for (auto i = 0; i < 300; ++i)
    silent.push_back(std::make_unique<lm_wire>(served.http_port()));
  auto before = std::chrono::steady_clock::now();
  CHECK(served.get("/healthz").status == 200);
  CHECK(std::chrono::steady_clock::now() - before < 1s);
  // Two that never finish their request hold both threads, for two seconds at most.
  lm_wire slow1{served.http_port()}, slow2{served.http_port()};
  slow1.send(to_bytes("GET /healthz HTTP/1.1\r\n"));
  slow2.send(to_bytes("GET /healthz HTTP/1.1\r\n"));
  std::this_thread::sleep_for(50ms);
  before = std::chrono::steady_clock::now();
  CHECK(served.get("/healthz").status == 200);
  CHECK(std::chrono::steady_clock::now() - before < 3s);
}

TEST_CASE("a connection carries several requests, also sent at once") {
  running_daemon served;
  lm_wire client{served.http_port()};
  auto request = to_bytes("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  auto reply_size = [&] {
    client.send(request);
    auto head = bytes{};
    while (head.size() < 4 || std::memcmp(&head[head.size() - 4], "\nok\n", 4) != 0)
      head.push_back(client.receive(1).at(0));
    return head.size();
  };
  auto first = reply_size();
  CHECK(reply_size() == first);
  auto both = request;
  both.insert(both.end(), request.begin(), request.end());
  client.send(both);
  CHECK(client.receive(2 * first).size() == 2 * first);
}

TEST_CASE("counters tell what was done, and nothing else moves them") {
  running_daemon served;
  {
    lm_wire client{served.lm_port()};
    auto value = pattern(100'000, 1);
    REQUIRE(client.put("m@1@0@1@half", value));
    REQUIRE(client.get("m@1@0@1@half"));
    REQUIRE(client.get("m@1@0@1@half"));
    REQUIRE_FALSE(client.get("m@1@0@2@half"));
  }
  auto closed = [&] {
    return served.metric("kvasir_lm_connections_closed_total") == 1;
  };
  for (auto i = 0; i < 1000 && !closed(); ++i)
    std::this_thread::sleep_for(2ms);
  CHECK(served.metric("kvasir_lm_puts_total") == 1);
  CHECK(served.metric("kvasir_lm_put_bytes_total") == 100'000);
  CHECK(served.metric("kvasir_lm_gets_total") == 3);
  CHECK(served.metric("kvasir_lm_get_hits_total") == 2);
  CHECK(served.metric("kvasir_lm_get_bytes_total") == 200'000);
  CHECK(served.metric("kvasir_lm_exists_total") == 1);
  CHECK(served.metric("kvasir_published_total") == 1);
  CHECK(served.metric("kvasir_hits_total") == 2);
  CHECK(served.metric("kvasir_misses_total") == 1);
  CHECK(served.metric("kvasir_objects") == 1);
  CHECK(served.metric("kvasir_lm_open_connections") == 0);
  while (served.metric("kvasir_pool_growing") == 1)
    std::this_thread::sleep_for(2ms);

  auto first = served.get("/metrics").body;
  std::string beside;
  std::thread another{[&] {
    beside = served.get("/metrics").body;
  }};
  for (auto i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(100ms);
    CHECK(samples(served.get("/metrics").body) == samples(first));
  }
  another.join();
  CHECK(samples(beside) == samples(first));
  CHECK(samples(first).find(" -") == std::string::npos);

  running_daemon restarted;
  CHECK(restarted.metric("kvasir_lm_puts_total") == 0);
  CHECK(restarted.metric("kvasir_objects") == 0);
}

TEST_CASE("every metric is in docs/operations.md, with one type") {
  running_daemon served;
  std::ifstream file{std::string{KVASIR_GOLDEN_DIR} + "/../../docs/operations.md"};
  std::string document{std::istreambuf_iterator<char>{file}, {}};
  std::istringstream lines{served.get("/metrics").body};
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) != 0)
      continue;
    std::istringstream words{line.substr(7)};
    std::string name, type;
    words >> name >> type;
    CHECK_MESSAGE(seen.insert(name).second, name);
    CHECK_MESSAGE(name.rfind("kvasir_", 0) == 0, name);
    CHECK_MESSAGE(name.ends_with("_total") == (type == "counter"), name);
    CHECK_MESSAGE(document.find("`" + name + "`") != std::string::npos, name);
  }
  CHECK(seen.size() > 50);
}

TEST_CASE("objects are listed and removed over HTTP") {
  running_daemon served;
  lm_wire client{served.lm_port()};
  REQUIRE(client.put("a/b@1@0@1@half", pattern(100, 1)));
  auto list = nlohmann::json::parse(served.get("/v1/objects").body);
  CHECK(list["next_cursor"] == 0);
  REQUIRE(list["objects"].size() == 1);
  CHECK(list["objects"][0]["key"] == "a/b@1@0@1@half");
  CHECK(list["objects"][0]["size_bytes"] == 100);
  auto port = served.http_port();
  CHECK(http(port, "DELETE", "/v1/objects?key=a%2Fb%401%400%401%40half").status == 200);
  CHECK(http(port, "DELETE", "/v1/objects?key=a%2Fb%401%400%401%40half").status == 404);
  CHECK_FALSE(client.exist("a/b@1@0@1@half"));
  CHECK(http(port, "DELETE", "/v1/objects").status == 400);
  CHECK(http(port, "DELETE", "/v1/objects?key=%ff%fe").status == 400);
  CHECK(served.get("/v1/objects?cursor=x").status == 400);
  CHECK(served.get("/v1/nothing").status == 404);
  REQUIRE(client.put("a@1@0@1@half", pattern(100, 1)));
  CHECK(http(port, "POST", "/v1/clear").status == 200);
  CHECK_FALSE(client.exist("a@1@0@1@half"));
  CHECK(http(port, "POST", "/v1/clear", {"Content-Length: 0"}).status == 200);
}

TEST_CASE("a known path says which methods it takes, an unknown one is not found") {
  running_daemon served;
  auto port = served.http_port();
  const std::pair<std::string, std::string> routes[]
    = {{"/healthz", "GET, HEAD"},
       {"/metrics", "GET, HEAD"},
       {"/v1/status", "GET, HEAD"},
       {"/v1/objects", "GET, HEAD, DELETE"},
       {"/v1/clear", "POST"},
       {"/v1/quotas", "GET, HEAD, PUT, DELETE"},
       {"/healthcheck", "GET, HEAD"},
       {"/status", "GET, HEAD"},
       {"/cache/clear", "POST"},
       {"/quota", "GET, HEAD"},
       {"/quota/t", "GET, HEAD, PUT, DELETE"}};
  const std::string methods[]
    = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"};
  for (const auto& [path, allowed] : routes)
    for (const auto& method : methods) {
      CAPTURE(path);
      CAPTURE(method);
      auto reply = http(port, method, path);
      if ((", " + allowed + ",").find(", " + method + ",") != std::string::npos) {
        CHECK(reply.status != 405);
        continue;
      }
      CHECK(reply.status == 405);
      CHECK(reply.head.find("\r\nAllow: " + allowed) != std::string::npos);
      auto bodiless = method == "HEAD";
      CHECK(bodiless ? reply.body.empty()
                     : nlohmann::json::parse(reply.body).contains("error"));
      // Not something that a route does with its body either.
      if (method != "HEAD")
        CHECK(http(port, method, path, {}, "127.0.0.1", "{}").status == 405);
    }
  for (const auto& method : {"GET", "HEAD", "POST", "PUT", "DELETE"})
    for (const auto& path :
         {"/", "/v1", "/cache", "/cache/clear/", "/quota/a/b", "/healthzz"}) {
      CAPTURE(path);
      auto reply = http(port, method, path);
      CHECK(reply.status == 404);
      CHECK(reply.head.find("\r\nAllow:") == std::string::npos);
    }
}

TEST_CASE("with an admin token nobody changes anything without it") {
  auto file = temporary_token("  s3cret-token\n");
  running_daemon served{{"--admin-token-file", file}};
  auto port = served.http_port();
  CHECK(http(port, "POST", "/v1/clear").status == 401);
  CHECK(http(port, "DELETE", "/v1/objects?key=k").status == 401);
  for (auto wrong : {"s3cret-toke", "s3cret-token2", "S3cret-token", "", "x"})
    CHECK(
      http(port, "POST", "/v1/clear", {"Authorization: Bearer " + std::string{wrong}}).status
      == 401);
  CHECK(http(port, "POST", "/v1/clear", {"Authorization: Basic s3cret-token"}).status == 401);
  CHECK(http(port, "POST", "/v1/clear", {"Authorization: Bearer s3cret-token"}).status == 200);
  CHECK(served.get("/healthz").status == 200);
  auto as_client = [&](std::vector<std::string> environment) {
    environment.push_back("KVASIR_HTTP_PORT=" + std::to_string(port));
    return run("kvasir", {"clear"}, environment);
  };
  CHECK(as_client({}).exit_code == 4);
  CHECK(as_client({"KVASIR_ADMIN_TOKEN_FILE=" + file}).exit_code == 0);
  unlink(file.c_str());
}

TEST_CASE("without a token web pages and other hosts change nothing") {
  running_daemon served{{"--host", "0.0.0.0"}};
  auto port = served.http_port();
  CHECK(http(port, "POST", "/v1/clear", {"Origin: http://example.com"}).status == 403);
  // Another address of this host than the loopback one stands for another host.
  std::array<char, 256> name{};
  REQUIRE(gethostname(name.data(), name.size()) == 0);
  auto elsewhere = kvasir::connect_to(name.data(), port, 1000);
  sockaddr_in peer{};
  socklen_t size = sizeof(peer);
  if (!elsewhere || getpeername(elsewhere->fd(), reinterpret_cast<sockaddr*>(&peer), &size) != 0
      || peer.sin_family != AF_INET || (ntohl(peer.sin_addr.s_addr) >> 24) == 127)
    return; // This host has no other address.
  CHECK(http(port, "POST", "/v1/clear", {}, name.data()).status == 403);
  CHECK(http(port, "GET", "/healthz", {}, name.data()).status == 200);
}

TEST_CASE("broken requests harm nobody") {
  running_daemon served;
  for (const auto& text :
       {std::string(100'000, 'A'), "GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n",
        std::string{"GET / HTTP/9.9\r\n\r\n"}, std::string{"\r\n\r\n\r\n\r\n"},
        std::string{"POST /v1/clear HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"},
        std::string{"POST /v1/clear HTTP/1.1\r\nContent-Length: -1\r\n\r\n"},
        std::string{"PUT /quota/x HTTP/1.1\r\n\r\n"},
        "PUT /quota/x HTTP/1.1\r\nContent-Length: 60000\r\n\r\n" + std::string(60'000, '['),
        std::string{"POST /v1/clear HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
        std::string("GET /\0 HTTP/1.1\r\n\r\n", 19)}) {
    auto socket = kvasir::connect_to("127.0.0.1", served.http_port(), 1000);
    REQUIRE(socket);
    send(socket->fd(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  CHECK(served.get("/healthz").status == 200);
  CHECK(served.stop().exit_code == 0);
}
