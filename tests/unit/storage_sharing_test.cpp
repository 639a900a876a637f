#include "messages/chunk_messages.hpp"
#include "support/joined_engine.hpp"
#include "support/storage_fixture.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

object_key chunk(uint64_t number) {
  return {std::string(1, '\0') + std::to_string(number)};
}

/// What engines and a storage manager have in common; outlives the manager.
struct shared_parts {
  std::unique_ptr<object_index> index = std::move(*object_index::create(100));
  hold_board board;
};

struct fixture : shared_parts, storage_fixture {
  fixture() : storage_fixture(how(*this)) {}

  static setup how(shared_parts& shared) {
    setup result;
    result.pages = 8;
    result.options.revisit_interval = 20ms;
    result.index = shared.index.get();
    result.board = &shared.board;
    return result;
  }

  bool store_chunk(uint64_t number) {
    auto reserved
      = ask<chunk_reservations>(reserve_chunks{1, {}, {}, page, {{chunk(number), {}}}});
    if (!reserved || reserved->chunks[0].state != chunk_state::reserved)
      return false;
    auto finished
      = ask<chunks_finished>(finish_chunks{{{reserved->chunks[0].lease.id, 5}}, 0, {}});
    return static_cast<bool>(finished);
  }

  void pass(std::chrono::milliseconds time) {
    sim.scheduler().advance_time(time);
    sim.run();
  }

  joined_engine engine{*index, board};
};

} // namespace

TEST_CASE_FIXTURE(fixture,
                  "memory that an engine lets go is free a moment later, without a word") {
  REQUIRE(store_chunk(1));
  CHECK(status().indexed_objects == 1);
  auto held = engine.acquire(chunk(1));
  REQUIRE(held);
  CHECK(ask(remove_object{chunk(1)}));
  CHECK(status().limbo_bytes == page);
  CHECK(status().indexed_objects == 0);
  pass(100ms);
  CHECK(status().limbo_bytes == page);
  engine.release(*held);
  pass(20ms);
  CHECK(status().limbo_bytes == 0);
  CHECK(status().used_bytes == 0);
}

TEST_CASE_FIXTURE(fixture,
                  "a write that waits for what an engine reads goes on when it lets go") {
  std::vector<joined_engine::hold> holds;
  for (uint64_t i = 0; i < 7; ++i) {
    REQUIRE(store_chunk(i));
    holds.push_back(engine.acquire(chunk(i)).value());
  }
  REQUIRE(reserve(1, 1)); // Somebody writes: the next one waits rather than being refused.
  auto waiting = start<write_lease>(reserve_write{2, key(2), {}, page});
  sim.run();
  CHECK(waiting.pending());
  pass(100ms);
  CHECK(waiting.pending());
  CHECK(status().skipped_evictions > 0);
  engine.release(holds[3]);
  pass(20ms);
  REQUIRE(waiting.get());
  CHECK(waiting.get()->where.offset_bytes == holds[3].object.where.offset_bytes);
}

TEST_CASE_FIXTURE(fixture, "a dead engine's memory is free when the manager is told to look") {
  REQUIRE(store_chunk(1));
  REQUIRE(engine.acquire(chunk(1)));
  CHECK(ask(remove_object{chunk(1)}));
  board.remove(engine.id());
  CHECK(status().limbo_bytes == page);
  caf::anon_send(manager(), revisit_holds{});
  sim.run();
  CHECK(status().limbo_bytes == 0);
}

TEST_CASE_FIXTURE(fixture,
                  "while nothing is in limbo and nobody waits, the manager looks at nothing") {
  REQUIRE(store_chunk(1));
  REQUIRE(engine.acquire(chunk(1)));
  CHECK_FALSE(sim.scheduler().has_job());
  sim.scheduler().advance_time(1h);
  CHECK_FALSE(sim.scheduler().has_job());
}
