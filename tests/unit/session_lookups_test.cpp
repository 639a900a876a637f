#include "support/engine_fixture.hpp"
#include "support/gate.hpp"

#include <doctest/doctest.h>
#include <malloc.h>

/// The session table while a lookup is under way, and at its limits.

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// The questions of its session table can be held back.
class lookup_fixture : public engine_fixture {
public:
  explicit lookup_fixture(const session_options& options = usual_sessions())
    : engine_fixture(32),
      to_manager(sim.system(), manager()) {
    replace_sessions(to_manager.handle(), options);
    REQUIRE(enroll(1));
  }

  awaited<lookup_result> wait_for(const std::string& request) {
    auto result = sim.start<lookup_result>(sessions, take_lookup_result{request, true});
    sim.run();
    return result;
  }

  void begin_lookup(const std::string& request, const prompt& tokens, client_id client = 0) {
    REQUIRE(sim.ask(sessions, lookup_prompt{client, "model", 1, "", request, tokens, 1}));
  }

  lookup_result peek(const std::string& request) {
    auto result = sim.ask<lookup_result>(sessions, take_lookup_result{request, false});
    REQUIRE(result);
    return *result;
  }

  gate<storage_manager_actor> to_manager;
};

session_options with_limits(size_t sessions, uint64_t token_bytes) {
  auto result = engine_fixture::usual_sessions();
  result.max_sessions = sessions;
  result.max_token_bytes = token_bytes;
  return result;
}

constexpr uint64_t chunk_token_bytes = chunk_tokens * sizeof(uint32_t);

} // namespace

TEST_SUITE_BEGIN("session lookups");

TEST_CASE_FIXTURE(lookup_fixture,
                  "a lookup under way is said, and its waiters hear of its end") {
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(1, "w", tokens));
  to_manager.close();
  begin_lookup("r", tokens);
  CHECK(peek("r").running);
  auto first = wait_for("r");
  auto second = wait_for("r");
  CHECK(first.pending());
  CHECK_FALSE(get(1, range("r", tokens, 0, 2))); // Nothing was announced yet.
  to_manager.open();
  sim.run();
  CHECK(first.get()->chunks == 2);
  CHECK(second.get()->chunks == 0); // A result is handed out once.
  CHECK(first.count() + second.count() == 2);
  CHECK_FALSE(peek("r").running);
  CHECK(get(1, range("r", tokens, 0, 2)));
}

TEST_CASE_FIXTURE(lookup_fixture, "a lookup that is replaced under way leaves nothing") {
  auto tokens = make_prompt(1, 3);
  REQUIRE(put(1, "w", tokens));
  to_manager.close();
  begin_lookup("r", tokens);
  auto former = wait_for("r");
  begin_lookup("r", {tokens.begin(), tokens.begin() + 2 * chunk_tokens});
  auto later = wait_for("r");
  CHECK(failed_with(former.get(), errc::not_reserved));
  CHECK(later.pending());
  to_manager.open();
  sim.run();
  CHECK(former.count() == 1);
  CHECK(later.get()->chunks == 2);
  CHECK(leases() == 2);
  CHECK_FALSE(get(1, range("r", tokens, 0, 3)));
  end("r");
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(lookup_fixture, "what ends a lookup under way ends what it will hold") {
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(1, "w", tokens));
  to_manager.close();
  begin_lookup("r", tokens, 5);
  auto waiting = wait_for("r");
  SUBCASE("its session") {
    end("r");
  }
  SUBCASE("its client") {
    caf::anon_send(sessions, client_gone{5});
  }
  SUBCASE("its time") {
    pass(601s);
  }
  sim.run();
  CHECK(failed_with(waiting.get(), errc::not_reserved));
  to_manager.open();
  sim.run();
  CHECK(leases() == 0);
  CHECK_FALSE(get(1, range("r", tokens, 0, 2)));
}

TEST_CASE_FIXTURE(lookup_fixture, "only so many wait for one result") {
  auto tokens = make_prompt(1, 1);
  to_manager.close();
  begin_lookup("r", tokens);
  std::vector<awaited<lookup_result>> waiting;
  for (auto i = 0; i < 64; ++i)
    waiting.push_back(wait_for("r"));
  CHECK(failed_with(wait_for("r").get(), errc::busy));
  to_manager.open();
  sim.run();
  for (auto& each : waiting)
    CHECK(each.get());
}

TEST_CASE_FIXTURE(lookup_fixture, "chunks that a lookup does not hold cannot be freed") {
  auto tokens = make_prompt(1, 4);
  REQUIRE(put(1, "w", {tokens.begin(), tokens.begin() + 2 * chunk_tokens}));
  to_manager.close();
  begin_lookup("r", tokens);
  CHECK(sim.ask(sessions, free_lookup{range("r", tokens, 0, 2), 1}));
  CHECK(session_counts().unlock_misses == 2); // It holds none yet.
  to_manager.open();
  sim.run();
  CHECK(leases() == 2);
  CHECK(sim.ask(sessions, free_lookup{range("r", tokens, 1, 4), 1}));
  CHECK(session_counts().unlock_misses == 4); // The last two were not found.
  CHECK(leases() == 1);
}

TEST_CASE("the session not mentioned for longest gives way to a new one, with its leases") {
  lookup_fixture node{with_limits(3, 1 << 20)};
  auto tokens = make_prompt(1, 2);
  REQUIRE(node.put(1, "w", tokens));
  node.end("w");
  for (auto id : {"a", "b", "c"})
    REQUIRE(node.look_up(id, tokens) == 2);
  REQUIRE(node.get(1, node.range("a", tokens, 0, 1))); // "b" is the idlest now.
  REQUIRE(node.session_counts().sessions_dropped == 0);
  auto held = node.leases();
  CHECK(node.look_up("d", tokens) == 2);
  CHECK(node.leases() == held);
  CHECK(node.session_counts().sessions == 3);
  CHECK(node.session_counts().sessions_dropped == 1);
  CHECK(node.get(1, node.range("c", tokens, 0, 2)));
  CHECK_FALSE(node.get(1, node.range("b", tokens, 0, 2)));
}

TEST_CASE("a request is served even where no session may stay") {
  lookup_fixture node{with_limits(0, 0)};
  auto tokens = make_prompt(1, 2);
  REQUIRE(node.put(1, "w", tokens));
  CHECK(node.look_up("r", tokens) == 2);
  CHECK(node.get(1, node.range("r", tokens, 0, 2)));
  CHECK(node.session_counts().sessions == 1);
  CHECK(node.look_up("s", tokens) == 2);
  CHECK(node.session_counts().sessions == 1);
}

TEST_CASE("tokens beyond their limit cost the idlest sessions, never the one in use") {
  lookup_fixture node{with_limits(100, 6 * chunk_token_bytes)};
  for (uint32_t i = 1; i <= 3; ++i)
    REQUIRE(node.look_up("r" + std::to_string(i), make_prompt(i, 2)) == 0);
  CHECK(node.session_counts().sessions == 3);
  CHECK(node.session_counts().token_bytes == 6 * chunk_token_bytes);
  // One token more.
  auto longer = make_prompt(4, 2);
  longer.resize(1);
  REQUIRE(node.look_up("r4", longer) == 0);
  CHECK(node.session_counts().sessions == 3);
  CHECK(node.session_counts().sessions_dropped == 1);
  CHECK(node.session_counts().token_bytes == 4 * chunk_token_bytes + sizeof(uint32_t));
  // A prompt beyond the whole limit is served alone.
  REQUIRE(node.put(1, "r5", make_prompt(5, 8)));
  CHECK(node.session_counts().sessions == 1);
  CHECK(node.session_counts().token_bytes == 8 * chunk_token_bytes);
}

TEST_CASE_FIXTURE(lookup_fixture, "lookups that ended take no memory") {
  auto tokens = make_prompt(1, 1);
  REQUIRE(put(1, "w", tokens));
  std::string id(4096, 'r');
  auto look_up_often = [&](int times) {
    for (auto i = 0; i < times; ++i)
      REQUIRE(look_up(id, tokens) == 1);
  };
  look_up_often(10);
  auto before = mallinfo2().uordblks;
  look_up_often(2'000);
  CHECK(mallinfo2().uordblks < before + 2'000 * 2'048);
  // What is still held ends with its time as ever.
  pass(301s);
  CHECK(leases() == 0);
}

TEST_SUITE_END();
