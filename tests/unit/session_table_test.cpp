#include "support/engine_fixture.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::test;

namespace {

class session_fixture : public engine_fixture {
public:
  session_fixture() : engine_fixture(32) { REQUIRE(enroll(1)); }

  session_status now() { return session_counts(); }

  uint32_t take(const std::string& request) {
    auto result = sim.ask<lookup_result>(sessions, take_lookup_result{request, false});
    REQUIRE(result);
    return result->chunks;
  }

  void unlock(const std::string& request, const prompt& tokens, size_t first, size_t last,
              const std::string& salt = "", uint32_t readers = 1) {
    auto what = range(request, tokens, first, last);
    what.salt = salt;
    CHECK(sim.ask(sessions, free_lookup{what, readers}));
  }
};

} // namespace

TEST_SUITE_BEGIN("session table");

TEST_CASE_FIXTURE(session_fixture, "a lookup counts whole chunks of the resident prefix") {
  auto tokens = make_prompt(1, 8);
  REQUIRE(put(1, "w", tokens));
  struct expectation {
    size_t tokens;
    uint32_t chunks;
  };
  auto longer = tokens;
  longer.insert(longer.end(), {7, 7, 7, 7, 7, 7, 7, 7});
  for (auto [size, chunks] : {expectation{0, 0},
                              {3, 0},
                              {4, 1},
                              {5, 1},
                              {31, 7},
                              {32, 8},
                              {33, 8},
                              {35, 8},
                              {36, 8}}) {
    CAPTURE(size);
    CHECK(look_up("r", {longer.begin(), longer.begin() + static_cast<ptrdiff_t>(size)})
          == chunks);
  }
  end("r");
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(session_fixture, "a result is handed out once") {
  REQUIRE(put(1, "w", make_prompt(1, 2)));
  CHECK(look_up("r", make_prompt(1, 2)) == 2);
  CHECK(take("r") == 0);
  CHECK(take("unknown") == 0);
}

TEST_CASE_FIXTURE(session_fixture, "a repeated lookup replaces the former one") {
  REQUIRE(put(1, "w", make_prompt(1, 2)));
  for (auto i = 0; i < 3; ++i)
    CHECK(look_up("r", make_prompt(1, 2)) == 2);
  CHECK(leases() == 2);
  end("r");
  CHECK(leases() == 0);
  end("r");
}

TEST_CASE_FIXTURE(session_fixture, "a chunk counts only if every rank has it") {
  REQUIRE(enroll(2, page_layout(), 2));
  auto tokens = make_prompt(5, 3);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    CHECK(look_up("l", tokens, 1, 2) == 0);
    auto what = range("w", tokens, 0, rank == 0 ? 3 : 2, rank, 2);
    prepare(2, what);
    CHECK(commit(2, what));
  }
  CHECK(look_up("l", tokens, 1, 2) == 2);
  CHECK(leases() == 4);
  CHECK(get(2, range("l", tokens, 0, 2, 0, 2)));
  CHECK_FALSE(get(2, range("l", tokens, 0, 2, 0, 2)));
  CHECK(get(2, range("l", tokens, 0, 2, 1, 2)));
}

TEST_CASE_FIXTURE(session_fixture,
                  "freeing gives back what the lookup announced, by its salt") {
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(1, "w", tokens));
  REQUIRE(look_up("r", tokens) == 2);
  unlock("r", tokens, 0, 2, "other");
  CHECK(leases() == 2);
  CHECK(now().unlock_misses == 2);
  unlock("r", tokens, 0, 1);
  CHECK(leases() == 1);
  unlock("r", tokens, 0, 2); // The first has nothing left to free.
  CHECK(leases() == 0);
  CHECK(now().unlock_misses == 3);
  CHECK_FALSE(get(1, range("r", tokens, 0, 2)));
  unlock("nobody", tokens, 0, 2);
  CHECK(now().unlock_misses == 5);
}

TEST_CASE_FIXTURE(session_fixture,
                  "leases end with their time, a late retrieve may still succeed") {
  auto tokens = make_prompt(1, 4);
  REQUIRE(put(1, "w", tokens));
  REQUIRE(look_up("r", tokens) == 4);
  REQUIRE(leases() == 4);
  pass(299s);
  CHECK(leases() == 4);
  pass(2s);
  CHECK(leases() == 0);
  CHECK(now().leases_expired == 4);
  SUBCASE("while the chunks are resident") {
    CHECK(get(1, range("r", tokens, 0, 4)));
  }
  SUBCASE("but not after one was lost") {
    CHECK(ask(clear_objects{}));
    CHECK_FALSE(get(1, range("r", tokens, 0, 4)));
  }
}

TEST_CASE_FIXTURE(session_fixture, "what a lookup holds is not evicted before its retrieve") {
  auto tokens = make_prompt(1, 8);
  REQUIRE(put(1, "w", tokens));
  REQUIRE(look_up("r", tokens) == 8);
  for (uint32_t i = 2; i < 20; ++i)
    put(1, "flood", make_prompt(i, 6));
  CHECK(get(1, range("r", tokens, 0, 8)));
}

TEST_CASE_FIXTURE(session_fixture, "a client that goes away takes its leases along") {
  auto tokens = make_prompt(1, 2);
  REQUIRE(put(1, "w", tokens));
  REQUIRE(look_up("r", tokens, 1, 1, "", 5) == 2);
  REQUIRE(look_up("s", tokens, 1, 1, "", 6) == 2);
  caf::anon_send(sessions, client_gone{5});
  sim.run();
  CHECK(leases() == 2);
}

TEST_CASE_FIXTURE(session_fixture, "an id that comes back with other tokens is hashed anew") {
  auto first = make_prompt(1, 2);
  auto second = make_prompt(2, 2);
  REQUIRE(put(1, "same", first));
  REQUIRE(put(1, "same", second));
  CHECK(look_up("r1", first) == 2);
  CHECK(look_up("r2", second) == 2);
  CHECK(look_up("r3", make_prompt(3, 2)) == 0);
}

TEST_CASE_FIXTURE(session_fixture, "a prompt that grows is hashed once") {
  auto tokens = make_prompt(1, 8);
  auto before = now().hashed_chunks;
  for (size_t chunks = 1; chunks <= 8; ++chunks)
    REQUIRE(put(1, "r", {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(4 * chunks)}));
  CHECK(now().hashed_chunks - before == 8);
}

TEST_CASE_FIXTURE(session_fixture, "ranges lie on chunks and within the tokens") {
  auto ask_for = [&](uint64_t start, uint64_t end) {
    auto what = range("r", make_prompt(1, 2), 0, 0);
    what.start = start;
    what.end = end;
    return sim.ask<resolved_chunks>(sessions,
                                    resolve_chunks{what, page_layout().digest(), false, false});
  };
  CHECK(ask_for(0, 8));
  CHECK(ask_for(4, 4)->keys.empty());
  for (auto [start, end] : {std::pair{1, 8}, {0, 7}, {0, 12}, {8, 4}})
    CHECK(ask_for(static_cast<uint64_t>(start), static_cast<uint64_t>(end)).error()
          == errc::invalid_argument);
}

TEST_CASE_FIXTURE(session_fixture, "the layout goes with the last instance that uses it") {
  REQUIRE(enroll(2));
  REQUIRE(put(1, "w", make_prompt(1, 1)));
  CHECK(tell<void>(1, unregister_engine{}));
  CHECK(look_up("r", make_prompt(1, 1)) == 1);
  CHECK(put(2, "w2", make_prompt(2, 1)));
  CHECK(tell<void>(2, unregister_engine{}));
  CHECK(now().layouts == 0);
  CHECK(look_up("r", make_prompt(1, 1)) == 0);
  REQUIRE(enroll(3));
  CHECK(look_up("r", make_prompt(1, 1)) == 1);
}

TEST_CASE_FIXTURE(session_fixture, "a rank beyond the world has no chunks") {
  for (auto [rank, world_size] : {std::pair{1u, 1u}, {0u, 0u}}) {
    auto what = range("r", make_prompt(1, 1), 0, 1, rank, world_size);
    CHECK(sim
            .ask<resolved_chunks>(sessions,
                                  resolve_chunks{what, page_layout().digest(), false, true})
            .error()
          == errc::invalid_argument);
  }
}

TEST_CASE_FIXTURE(session_fixture, "a refused layout is counted") {
  CHECK(enroll(2, page_layout(tensor_dtype::float32)).error() == errc::layout_mismatch);
  CHECK(now().layouts_refused == 1);
  CHECK(now().layouts == 1);
  REQUIRE(enroll(2));
  CHECK(now().layouts_refused == 1);
}

TEST_CASE_FIXTURE(session_fixture, "sessions that nobody mentions end") {
  REQUIRE(put(1, "w", make_prompt(1, 2)));
  REQUIRE(look_up("r", make_prompt(1, 2)) == 2);
  CHECK(now().sessions == 2);
  CHECK(now().token_bytes == 2 * 8 * 4);
  pass(601s);
  CHECK(now().sessions == 0);
  CHECK(now().token_bytes == 0);
  CHECK(leases() == 0);
}

TEST_SUITE_END();
