// Checksums of chunks that engines wrote into shared memory, which nobody saw arrive.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;

TEST_CASE("a chunk that changes after it was hashed is a miss") {
  mp_daemon served;
  mp_client writer{served.mp_port()};
  REQUIRE(writer.enroll(1));
  chunk_range range{.prompt = 1, .last = 4};
  auto plan = writer.prepare_store(range);
  REQUIRE(plan.slots.size() == 4);
  writer.fill(range, plan);
  REQUIRE(writer.commit_store(range).is_true());
  wait_until([&] { return served.mp("sealed_chunks") == 4; });
  served.wait_for_rest();
  writer.pool->at(plan.slots[2].offset, plan.slots[2].length)[7] ^= std::byte{1};
  mp_client reader{served.mp_port()};
  REQUIRE(reader.enroll(2, {}, "m", 1, false));
  CHECK(reader.lookup(range) == 4);
  CHECK_FALSE(reader.retrieves_exactly(range));
  reader.end_session("r");
  CHECK(served.mp("checksum_mismatches") == 1);
  CHECK(reader.exact_prefix(range) == 2);
  served.wait_for_rest();
}

TEST_CASE("without checksums nothing is hashed or held for it") {
  mp_daemon served{{"--checksum", "off"}};
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1));
  chunk_range range{.prompt = 1, .last = 4};
  REQUIRE(client.store(range));
  CHECK(served.mp_at_rest());
  CHECK(client.exact_prefix(range) == 4);
  CHECK(served.mp("sealed_chunks") == 0);
  CHECK(served.mp("unsealed_chunks") == 0);
}

TEST_CASE("what waits to be hashed does not fill the pool") {
  mp_daemon served{{"--pool-size", "16MiB"}};
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1, large_layout(2)));
  chunk_range range{.prompt = 1, .last = 5};
  REQUIRE(client.store(range));
  // An eighth of the pool is one chunk.
  CHECK(served.mp("unsealed_chunks") >= 4);
  CHECK(client.exact_prefix(range) == 5);
  served.wait_for_rest();
  CHECK(served.mp("sealed_chunks") + served.mp("unsealed_chunks") == 5);
}
