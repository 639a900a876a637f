// The routes that LMCache's command line asks for, and kvasir's own of the same topics.
#include "support/mp_daemon.hpp"

#include <set>

using namespace kvasir::test;
using nlohmann::json;

namespace {

struct fixture {
  /// The answer's JSON; `code` is the status that it must have.
  json ask(const std::string& method, const std::string& target, const std::string& body = {},
           int code = 200) const {
    auto reply = http(served.http_port(), method, target, {}, "127.0.0.1", body);
    CHECK_MESSAGE(reply.status == code, method << " " << target << ": " << reply.body);
    auto result = json::parse(reply.body, nullptr, false);
    REQUIRE_MESSAGE(result.is_object(), reply.body);
    return result;
  }

  std::string error(const std::string& method, const std::string& target,
                    const std::string& body, int code = 400) const {
    return ask(method, target, body, code).at("error");
  }

  /// A worker that stored two chunks for a tenant.
  void store(const std::string& salt) {
    REQUIRE(worker.enroll(7));
    stored.salt = salt;
    REQUIRE(worker.store(stored));
    served.wait_for_rest();
  }

  mp_daemon served;
  mp_client worker{served.mp_port()};
  chunk_range stored{.prompt = 1, .last = 2};
};

} // namespace

TEST_CASE_FIXTURE(fixture,
                  "LMCache's health check and status tell what the node is and holds") {
  CHECK(ask("GET", "/healthcheck") == json{{"status", "healthy"}});
  auto empty = ask("GET", "/status");
  CHECK(empty["is_healthy"] == true);
  CHECK(empty["engine_type"] == "kvasir");
  CHECK(empty["chunk_size"] == chunk_tokens);
  CHECK(empty["active_sessions"] == 0);
  CHECK(empty["cache_context_meta"].empty());
  CHECK(empty["storage_manager"]["eviction_controller"]["eviction_policy"] == "s3fifo");
  CHECK(empty["storage_manager"]["l2_adapters"].is_array());

  store("");
  auto full = ask("GET", "/status");
  auto& memory = full["storage_manager"]["l1_manager"];
  CHECK(memory["memory_total_bytes"] == 64 << 20);
  CHECK(memory["memory_used_bytes"] == 2 * 16'384);
  CHECK(memory["memory_usage_ratio"] == 2 * 16'384 / double{64 << 20});
  CHECK(memory["total_object_count"] == 2);
  REQUIRE(full["cache_context_meta"].contains("7"));
  auto& engine = full["cache_context_meta"]["7"];
  CHECK(engine["model_name"] == "m");
  CHECK(engine["world_size"] == 1);
  auto& layout = engine["kv_cache_layout"];
  CHECK(layout["num_layers"] == 2);
  CHECK(layout["cache_size_per_token"] == 16'384 / chunk_tokens);
  REQUIRE(layout["kernel_groups"].size() == 1);
  CHECK(layout["kernel_groups"][0]["dtype"] == "float16");
  CHECK(layout["kernel_groups"][0]["is_mla"] == false);
  CHECK(layout["kernel_groups"][0]["tokens_per_block"] == chunk_tokens);

  worker.leave();
  CHECK(ask("GET", "/status")["cache_context_meta"].empty());
}

TEST_CASE_FIXTURE(fixture,
                  "LMCache's clear spares what somebody holds to read, unless forced") {
  store("");
  REQUIRE(worker.lookup(stored) == 2); // Holds both.
  const json done{{"status", "ok"}, {"cleared", {{"tier", "l1"}}}};
  CHECK(ask("POST", "/cache/clear") == done);
  CHECK(served.storage("objects") == 2);
  CHECK(ask("POST", "/cache/clear", R"({"tier":"l1"})") == done);
  CHECK(ask("POST", "/cache/clear", R"({"force":false,"other":1})") == done);
  CHECK(served.storage("objects") == 2);
  CHECK(ask("POST", "/cache/clear", R"({"tier":"l1","force":true})") == done);
  CHECK(worker.lookup(stored) == 0);
  CHECK(error("POST", "/cache/clear", R"({"tier":"l2"})").find("l1") != std::string::npos);
  for (auto bad : {"x", "[]", "1", R"({"force":1})", R"({"force":"true"})", "{"})
    CHECK_FALSE(error("POST", "/cache/clear", bad, 422).empty());
}

TEST_CASE_FIXTURE(fixture, "kvasir's clear is told whether to spare what is held") {
  store("");
  REQUIRE(worker.lookup(stored) == 2);
  ask("POST", "/v1/clear?force=false");
  CHECK(served.storage("objects") == 2);
  auto client = [&](std::vector<std::string> arguments) {
    return run("kvasir", std::move(arguments),
               {"KVASIR_HTTP_PORT=" + std::to_string(served.http_port())})
      .exit_code;
  };
  CHECK(client({"clear"}) == 0);
  CHECK(served.storage("objects") == 2);
  CHECK(client({"clear", "--force"}) == 0);
  CHECK(worker.lookup(stored) == 0);
  CHECK(error("POST", "/v1/clear?force=maybe", {}).find("force") != std::string::npos);
}

TEST_CASE_FIXTURE(fixture, "a quota is set, shown and deleted as LMCache's command line does") {
  CHECK(ask("GET", "/quota") == json{{"users", json::object()}});
  auto unknown = ask("GET", "/quota/t1");
  CHECK(
    unknown
    == json{
      {"cache_salt", "t1"}, {"limit_gb", 0.0}, {"current_usage_gb", 0.0}, {"exists", false}});
  CHECK(ask("PUT", "/quota/t1", R"({"limit_gb":0.5})")
        == json{{"cache_salt", "t1"}, {"limit_gb", 0.5}, {"status", "ok"}});
  store("t1");
  auto usage = 2 * 16'384 / double{1 << 30};
  CHECK(
    ask("GET", "/quota/t1")
    == json{
      {"cache_salt", "t1"}, {"limit_gb", 0.5}, {"current_usage_gb", usage}, {"exists", true}});
  CHECK(ask("GET", "/quota")
        == json{{"users", {{"t1", {{"limit_gb", 0.5}, {"current_usage_gb", usage}}}}}});
  CHECK(ask("DELETE", "/quota/t1") == json{{"cache_salt", "t1"}, {"status", "removed"}});
  CHECK(ask("DELETE", "/quota/t1") == json{{"cache_salt", "t1"}, {"status", "not_found"}});
  CHECK(ask("GET", "/quota/t1")["exists"] == false);
  CHECK(ask("GET", "/quota") == json{{"users", json::object()}}); // Objects alone are no quota.
}

TEST_CASE_FIXTURE(fixture, "a quota of 0 keeps nothing, as with LMCache, and is shown as 0") {
  ask("PUT", "/quota/t1", R"({"limit_gb":0})");
  auto shown = ask("GET", "/quota/t1");
  CHECK(shown["limit_gb"] == 0.0);
  CHECK(shown["exists"] == true);
  REQUIRE(worker.enroll(7));
  stored.salt = "t1";
  CHECK_FALSE(worker.store(stored));
  CHECK(served.storage("objects") == 0);
}

TEST_CASE_FIXTURE(fixture, "the nameless tenant and odd names are found under their names") {
  ask("PUT", "/quota/_default", R"({"limit_gb":1})");
  ask("PUT", "/quota/a%20%25b", R"({"limit_gb":"2.5"})");
  auto users = ask("GET", "/quota")["users"];
  CHECK(users.size() == 2);
  CHECK(users["_default"]["limit_gb"] == 1.0);
  CHECK(users["a %b"]["limit_gb"] == 2.5);
  CHECK(ask("GET", "/quota/_default")["cache_salt"] == "_default");
  std::set<std::string> names;
  auto own = ask("GET", "/v1/quotas");
  for (auto& quota : own["quotas"])
    names.insert(quota["tenant"].get<std::string>());
  CHECK(names == std::set<std::string>{"", "a %b"});
}

TEST_CASE_FIXTURE(fixture, "quotas that make no sense are refused") {
  for (auto bad : {"", "x", "[1", "{\"limit_gb\":1"})
    CHECK(error("PUT", "/quota/t", bad) == "invalid JSON body");
  for (auto bad : {"[]", "1", "{}", R"({"limit":1})"})
    CHECK(error("PUT", "/quota/t", bad) == "body must be {'limit_gb': <float>}");
  for (auto bad : {R"("x")", "null", "[]", "{}", "true", R"("1 ")", R"("")"})
    CHECK(error("PUT", "/quota/t", std::string{R"({"limit_gb":)"} + bad + "}")
          == "limit_gb must be numeric");
  CHECK(error("PUT", "/quota/t", R"({"limit_gb":"nan"})") == "limit_gb must be finite");
  CHECK(error("PUT", "/quota/t", R"({"limit_gb":-1})") == "limit_gb must be non-negative");
  CHECK(error("PUT", "/quota/t", R"({"limit_gb":1e300})").find("larger") != std::string::npos);
  const std::string long_name(129, 'x');
  for (const auto& name : {std::string{"a%40b"}, std::string{"a%5Cb"}, std::string{"%ff"},
                           std::string{"%00"}, long_name}) {
    error("PUT", "/quota/" + name, R"({"limit_gb":1})");
    error("PUT", "/v1/quotas?tenant=" + name + "&limit_bytes=1", {});
  }
  for (auto query : {"", "?tenant=t", "?limit_bytes=1", "?tenant=t&limit_bytes=0",
                     "?tenant=t&limit_bytes=x", "?tenant=t&limit_bytes=-1"})
    error("PUT", std::string{"/v1/quotas"} + query, {});
  error("DELETE", "/v1/quotas", {});
  error("DELETE", "/v1/quotas?tenant=t", {}, 404);
  CHECK(ask("GET", "/v1/quotas")["quotas"].empty());
}

TEST_CASE_FIXTURE(fixture, "there is an end to the number of tenants with a quota") {
  constexpr auto enough = 1100;
  auto refused = 0;
  for (auto i = 0; i < enough; ++i)
    if (http(served.http_port(), "PUT",
             "/v1/quotas?tenant=" + std::to_string(i) + "&limit_bytes=1")
          .status
        == 503)
      ++refused;
  CHECK(refused > 0);
  CHECK(ask("GET", "/v1/quotas")["quotas"].size() == enough - refused);
  CHECK(served.get("/healthz").status == 200);
}

TEST_CASE("LMCache's routes and the quotas need the admin token if there is one") {
  std::string path = "/tmp/kvasir_token_XXXXXX";
  close(mkstemp(path.data()));
  std::ofstream{path} << "s3cret";
  running_daemon served{{"--admin-token-file", path}};
  auto port = served.http_port();
  const std::pair<const char*, const char*> changes[] = {{"POST", "/cache/clear"},
                                                         {"PUT", "/quota/t"},
                                                         {"DELETE", "/quota/t"},
                                                         {"PUT", "/v1/quotas?tenant=t"},
                                                         {"DELETE", "/v1/quotas?tenant=t"}};
  const std::string body = R"({"limit_gb":1})";
  for (auto [method, target] : changes) {
    CAPTURE(target);
    CHECK(http(port, method, target, {}, "127.0.0.1", body).status == 401);
    CHECK(http(port, method, target, {"Authorization: Bearer s3cret"}, "127.0.0.1", body).status
          != 401);
  }
  for (auto target : {"/healthcheck", "/status", "/quota", "/quota/t", "/v1/quotas"})
    CHECK_MESSAGE(served.get(target).status == 200, target);
  unlink(path.c_str());
}

TEST_CASE_FIXTURE(fixture, "the client sets, shows and removes quotas") {
  auto kvasir = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "quota");
    return run("kvasir", std::move(arguments),
               {"KVASIR_HTTP_PORT=" + std::to_string(served.http_port())});
  };
  CHECK(kvasir({}).out.empty());
  CHECK(kvasir({"set", "a b&c", "2MiB"}).exit_code == 0);
  store("t2");
  CHECK(kvasir({"list"}).out == kvasir({}).out);
  auto entry = json::parse(kvasir({"get", "a b&c", "--json"}).out);
  CHECK(entry == json{{"tenant", "a b&c"}, {"used_bytes", 0}, {"limit_bytes", 2 << 20}});
  entry = json::parse(kvasir({"get", "t2", "--json"}).out);
  CHECK(entry == json{{"tenant", "t2"}, {"used_bytes", 2 * 16'384}});
  CHECK(kvasir({"get", "none"}).exit_code == 1);
  CHECK(kvasir({"rm", "a b&c"}).exit_code == 0);
  CHECK(kvasir({"rm", "a b&c"}).exit_code == 1);
  CHECK(kvasir({"set", "a@b", "1MiB"}).exit_code == 4);
  for (const auto& wrong : std::vector<std::vector<std::string>>{
         {"set", "t"}, {"set", "t", "0"}, {"set", "t", "x"}, {"get"}, {"rm"}, {"other"}})
    CHECK(kvasir(wrong).exit_code == 2);
}
