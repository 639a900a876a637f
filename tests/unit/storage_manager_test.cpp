#include "actors/storage_manager.hpp"

#include "support/storage_fixture.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace kvasir::test;

TEST_CASE_FIXTURE(storage_fixture, "an object is invisible until its write is finished") {
  auto lease = reserve(1, 7);
  REQUIRE(lease);
  CHECK_FALSE(exists(7));
  CHECK(failed_with(acquire(2, 7), errc::not_found));
  CHECK(ask<object_list>(list_objects{})->objects.empty());
  REQUIRE(ask(finish_write{lease->id, 0xabc}));
  CHECK(exists(7));
  auto read = acquire(2, 7);
  REQUIRE(read);
  CHECK(read->where == lease->where);
  CHECK(read->checksum == 0xabc);
}

TEST_CASE_FIXTURE(storage_fixture, "layout and size are handed back as they were declared") {
  object_layout layout{1, 7, {2, 3, -4, 2'147'483'647}};
  auto lease = ask<write_lease>(reserve_write{1, key(1), layout, 4097});
  REQUIRE(lease);
  CHECK(lease->where.size_bytes == 4097);
  CHECK(lease->where.offset_bytes % page == 0);
  REQUIRE(ask(finish_write{lease->id, 0}));
  auto read = acquire(1, 1);
  REQUIRE(read);
  CHECK(read->layout == layout);
  CHECK(read->where.size_bytes == 4097);
  CHECK(status().used_bytes == 2 * page);
}

TEST_CASE_FIXTURE(storage_fixture, "an empty object and an empty key are objects like others") {
  auto lease = ask<write_lease>(reserve_write{1, object_key{}, {}, 0});
  REQUIRE(lease);
  CHECK(lease->where.size_bytes == 0);
  REQUIRE(ask(finish_write{lease->id, 0}));
  auto read = ask<read_lease>(acquire_read{1, object_key{}});
  REQUIRE(read);
  CHECK(read->where.size_bytes == 0);
  CHECK(ask(release_read{read->id, false}));
  CHECK(ask(remove_object{object_key{}}));
  CHECK(status().used_bytes == 0);
}

TEST_CASE_FIXTURE(storage_fixture,
                  "a torn write leaves the old object and gives its room back") {
  REQUIRE(store(1, 1, 0x01d));
  SUBCASE("by abort") {
    auto lease = reserve(5, 1, 3);
    REQUIRE(lease);
    CHECK(status().claimed_bytes == 3 * page);
    REQUIRE(ask(abort_write{lease->id}));
  }
  SUBCASE("by the end of its owner") {
    REQUIRE(reserve(5, 1, 3));
    REQUIRE(ask(end_owner{5}));
  }
  auto read = acquire(2, 1);
  REQUIRE(read);
  CHECK(read->checksum == 0x01d);
  auto now = status();
  CHECK(now.aborted_writes == 1);
  CHECK(now.claimed_bytes == 0);
  CHECK(now.write_leases == 0);
  CHECK(now.used_bytes == page);
}

TEST_CASE_FIXTURE(storage_fixture, "of two writers of one key the last to finish wins") {
  auto first = reserve(1, 1);
  auto second = reserve(2, 1, 2);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->where.offset_bytes != second->where.offset_bytes);
  REQUIRE(ask(finish_write{second->id, 2}));
  CHECK(acquire(3, 1)->checksum == 2);
  REQUIRE(ask(finish_write{first->id, 1}));
  CHECK(acquire(3, 1)->checksum == 1);
  auto now = status();
  CHECK(now.objects == 1);
  CHECK(now.published == 2);
  CHECK(now.replaced == 1);
}

TEST_CASE_FIXTURE(storage_fixture, "a reader keeps the bytes of an object that is replaced") {
  REQUIRE(store(1, 2, 0x01d));
  auto read = acquire(9, 1);
  REQUIRE(read);
  REQUIRE(store(1, 2, 0x2e3));
  CHECK(acquire(8, 1)->where.offset_bytes != read->where.offset_bytes);
  CHECK(status().used_bytes == 4 * page);
  REQUIRE(ask(release_read{read->id, false}));
  CHECK(status().used_bytes == 2 * page);
}

TEST_CASE_FIXTURE(storage_fixture, "a lease is consumed once: what comes later is refused") {
  auto lease = reserve(1, 1);
  REQUIRE(lease);
  REQUIRE(ask(finish_write{lease->id, 0}));
  CHECK(failed_with(ask(finish_write{lease->id, 1}), errc::not_reserved));
  CHECK(failed_with(ask(abort_write{lease->id}), errc::not_reserved));
  auto torn = reserve(1, 2);
  REQUIRE(torn);
  REQUIRE(ask(abort_write{torn->id}));
  CHECK(failed_with(ask(abort_write{torn->id}), errc::not_reserved));
  CHECK(failed_with(ask(finish_write{torn->id, 0}), errc::not_reserved));
  auto read = acquire(1, 1);
  REQUIRE(read);
  REQUIRE(ask(release_read{read->id, false}));
  CHECK(failed_with(ask(release_read{read->id, false}), errc::not_reserved));
  CHECK(status().unknown_leases == 5);
  CHECK(acquire(1, 1)->checksum == 0);
  CHECK_FALSE(exists(2));
}

TEST_CASE_FIXTURE(storage_fixture, "a lease of one kind cannot be ended as the other") {
  REQUIRE(store(1));
  auto read = acquire(1, 1);
  auto write = reserve(1, 2);
  REQUIRE(read);
  REQUIRE(write);
  CHECK(failed_with(ask(finish_write{read->id, 0}), errc::not_reserved));
  CHECK(failed_with(ask(abort_write{read->id}), errc::not_reserved));
  CHECK(failed_with(ask(release_read{write->id, true}), errc::not_reserved));
  auto now = status();
  CHECK(now.write_leases == 1);
  CHECK(now.read_leases == 1);
  CHECK(now.corrupt_objects == 0);
  CHECK(now.unknown_leases == 3);
}

TEST_CASE_FIXTURE(storage_fixture, "lease ids that were never given out are refused") {
  for (lease_id id :
       {lease_id{0}, lease_id{1}, lease_id{1} << 32, (lease_id{1} << 32) | 5, UINT64_MAX}) {
    CHECK(failed_with(ask(finish_write{id, 0}), errc::not_reserved));
    CHECK(failed_with(ask(abort_write{id}), errc::not_reserved));
    CHECK(failed_with(ask(release_read{id, true}), errc::not_reserved));
  }
  CHECK(status().unknown_leases == 15);
}

TEST_CASE_FIXTURE(storage_fixture,
                  "a finish that comes after its owner ended publishes nothing") {
  auto lease = reserve(5, 1);
  REQUIRE(lease);
  REQUIRE(ask(end_owner{5}));
  // The same record and the same memory go to somebody else.
  auto other = reserve(6, 2);
  REQUIRE(other);
  CHECK(other->where.offset_bytes == lease->where.offset_bytes);
  CHECK(other->where.generation != lease->where.generation);
  CHECK(failed_with(ask(finish_write{lease->id, 0}), errc::not_reserved));
  CHECK_FALSE(exists(1));
  CHECK_FALSE(exists(2));
  REQUIRE(ask(finish_write{other->id, 0}));
  CHECK(exists(2));
}

TEST_CASE_FIXTURE(storage_fixture, "the end of an owner takes its leases and no others") {
  REQUIRE(store(1));
  for (owner_id owner : {5, 6}) {
    REQUIRE(acquire(owner, 1));
    REQUIRE(acquire(owner, 1));
    REQUIRE(reserve(owner, 2));
  }
  REQUIRE(ask(end_owner{5}));
  auto now = status();
  CHECK(now.read_leases == 2);
  CHECK(now.write_leases == 1);
  CHECK(now.held_bytes == page);
  CHECK(now.claimed_bytes == page);
  REQUIRE(ask(end_owner{5}));
  REQUIRE(ask(end_owner{77}));
  CHECK(status().read_leases == 2);
  REQUIRE(ask(end_owner{6}));
  now = status();
  CHECK(now.read_leases == 0);
  CHECK(now.write_leases == 0);
  CHECK(now.held_bytes == 0);
  CHECK(now.claimed_bytes == 0);
  CHECK(exists(1));
}

TEST_CASE_FIXTURE(storage_fixture,
                  "an object that is too large is refused, up to the last byte") {
  CHECK(reserve(1, 1, 8));
  for (auto size : {8 * page + 1, uint64_t{1} << 40, UINT64_MAX})
    CHECK(failed_with(ask<write_lease>(reserve_write{1, key(2), {}, size}), errc::too_large));
  CHECK(status().rejected_too_large == 3);
  CHECK(status().waiting == 0);
}

TEST_CASE_FIXTURE(storage_fixture,
                  "a removed object is gone at once, its memory when released") {
  REQUIRE(store(1, 2));
  auto read = acquire(1, 1);
  REQUIRE(read);
  REQUIRE(ask(remove_object{key(1)}));
  CHECK_FALSE(exists(1));
  CHECK(failed_with(acquire(1, 1), errc::not_found));
  CHECK(failed_with(ask(remove_object{key(1)}), errc::not_found));
  CHECK(status().used_bytes == 2 * page);
  CHECK(status().held_bytes == 2 * page);
  REQUIRE(store(1, 1, 0x2e3));
  REQUIRE(ask(release_read{read->id, false}));
  CHECK(acquire(2, 1)->checksum == 0x2e3);
  CHECK(status().used_bytes == page);
}

TEST_CASE_FIXTURE(storage_fixture,
                  "bytes that a reader found corrupt are handed to nobody else") {
  REQUIRE(store(1));
  auto first = acquire(1, 1);
  auto second = acquire(2, 1);
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE(ask(release_read{first->id, true}));
  CHECK(failed_with(acquire(3, 1), errc::not_found));
  CHECK(status().used_bytes == page); // The other reader still looks at it.
  REQUIRE(ask(release_read{second->id, true}));
  auto now = status();
  CHECK(now.used_bytes == 0);
  CHECK(now.corrupt_objects == 2);
  CHECK(now.removed == 1);
}

TEST_CASE_FIXTURE(storage_fixture, "a corrupt old object does not take its replacement along") {
  REQUIRE(store(1, 1, 0x01d));
  auto read = acquire(1, 1);
  REQUIRE(read);
  REQUIRE(store(1, 1, 0x2e3));
  REQUIRE(ask(release_read{read->id, true}));
  CHECK(acquire(2, 1)->checksum == 0x2e3);
}

TEST_CASE_FIXTURE(storage_fixture,
                  "existence is answered key by key, in order, repeats included") {
  REQUIRE(store(1));
  REQUIRE(store(3));
  auto result = ask<exist_result>(check_exist{{key(3), key(2), key(1), key(3)}});
  REQUIRE(result);
  CHECK(result->found == std::vector<uint8_t>{1, 0, 1, 1});
  CHECK(ask<exist_result>(check_exist{})->found.empty());
}

TEST_CASE_FIXTURE(storage_fixture, "the counters add up for a known mix of requests") {
  REQUIRE(store(1, 2));
  REQUIRE(store(2));
  REQUIRE(store(1, 3));                // Replaces.
  REQUIRE(ask(remove_object{key(2)})); // Removes.
  auto torn = reserve(1, 9, 2);
  REQUIRE(ask(abort_write{torn->id})); // Aborts.
  REQUIRE(acquire(1, 1));              // Two hits, one object held.
  REQUIRE(acquire(2, 1));
  CHECK_FALSE(acquire(1, 2)); // Misses.
  REQUIRE(reserve(3, 4, 4));  // Stays open.
  CHECK_FALSE(ask<write_lease>(reserve_write{1, key(5), {}, 9 * page}));
  auto now = status();
  CHECK(now.capacity_bytes == 16 * page);
  CHECK(now.usable_bytes == 16 * page);
  CHECK(now.used_bytes == 7 * page);
  CHECK(now.claimed_bytes == 4 * page);
  CHECK(now.held_bytes == 3 * page);
  CHECK(now.objects == 1);
  CHECK(now.write_leases == 1);
  CHECK(now.read_leases == 2);
  CHECK(now.waiting == 0);
  CHECK(now.hits == 2);
  CHECK(now.misses == 1);
  CHECK(now.published == 3);
  CHECK(now.replaced == 1);
  CHECK(now.evicted_objects == 0);
  CHECK(now.removed == 1);
  CHECK(now.aborted_writes == 1);
  CHECK(now.rejected_too_large == 1);
  CHECK(now.rejected_out_of_memory == 0);
  CHECK(now.rejected_busy == 0);
  CHECK(now.unknown_leases == 0);
}

TEST_CASE_FIXTURE(storage_fixture,
                  "small claims are counted with the memory they really take") {
  REQUIRE(ask<write_lease>(reserve_write{1, key(1), {}, 1}));
  REQUIRE(ask<write_lease>(reserve_write{1, key(2), {}, page + 1}));
  CHECK(status().claimed_bytes == 3 * page);
  CHECK(status().used_bytes == 3 * page);
  REQUIRE(ask(end_owner{1}));
  CHECK(status().claimed_bytes == 0);
}
