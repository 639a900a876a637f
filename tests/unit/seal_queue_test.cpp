#include "actors/seal_queue.hpp"

#include <doctest/doctest.h>

using namespace kvasir;

namespace {

constexpr uint64_t mib = 1 << 20;

std::vector<read_lease> chunks(uint64_t first_id, size_t count, uint64_t bytes_each) {
  std::vector<read_lease> result(count);
  for (auto& chunk : result) {
    chunk.id = first_id++;
    chunk.where.size_bytes = bytes_each;
  }
  return result;
}

std::vector<uint64_t> ids(const std::vector<read_lease>& leases) {
  std::vector<uint64_t> result;
  for (auto& lease : leases)
    result.push_back(lease.id);
  return result;
}

using id_list = std::vector<uint64_t>;

} // namespace

TEST_SUITE("seal queue") {
  TEST_CASE("chunks wait for a calm tick") {
    seal_queue queue{1024 * mib};
    CHECK(queue.empty());
    CHECK(queue.add(chunks(1, 2, mib)).empty());
    queue.moved(seal_queue::calm_bytes / 2);
    queue.moved(seal_queue::calm_bytes / 2 + 1);
    CHECK(queue.tick().empty());
    CHECK_FALSE(queue.empty());
    queue.moved(seal_queue::calm_bytes);
    CHECK(ids(queue.tick()) == id_list{1, 2});
    CHECK(queue.empty());
  }

  TEST_CASE("one batch at a time, the oldest first") {
    seal_queue queue{4096 * mib};
    CHECK(queue.add(chunks(1, 3, seal_queue::batch_bytes / 2)).empty());
    CHECK(ids(queue.tick()) == id_list{1, 2});
    CHECK(queue.tick().empty());
    queue.hashed();
    CHECK(ids(queue.tick()) == id_list{3});
    queue.hashed();
    CHECK(queue.tick().empty());
    CHECK(queue.add(chunks(4, 1, 2 * seal_queue::batch_bytes)).empty());
    CHECK(ids(queue.tick()) == id_list{4});
  }

  TEST_CASE("what waits has a limit, and the oldest are let go") {
    seal_queue queue{10 * mib};
    CHECK(queue.add(chunks(1, 10, mib)).empty());
    CHECK(ids(queue.add(chunks(11, 2, mib))) == id_list{1, 2});
    CHECK(ids(queue.add(chunks(13, 1, 11 * mib)))
          == id_list{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
    CHECK(queue.empty());
    CHECK(queue.add(chunks(14, 10, mib)).empty());
    CHECK(queue.tick().size() == 10);
    // What is being hashed is not counted any more.
    CHECK(queue.add(chunks(24, 10, mib)).empty());
  }
}
