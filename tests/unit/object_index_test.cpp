#include "backends/object_index.hpp"

#include "backends/object_index_reader.hpp"
#include "messages/errc.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace kvasir;

namespace {

using found = object_index_reader::found;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t changes = 200'000;
#else
constexpr uint64_t changes = 10'000'000; // A reader that does not look twice is caught within.
#endif

index_digest digest(uint64_t number) {
  return digest_of({std::string(1, '\0') + std::to_string(number)});
}

slot place(uint64_t number, uint64_t generation = 1) {
  return {number * 4096, number + 1, generation};
}

struct fixture {
  explicit fixture(uint64_t max_objects = 100)
    : index(std::move(*object_index::create(max_objects))),
      reader(std::move(*object_index_reader::map(index->read_only_fd()))) {}

  found find(uint64_t number) { return reader.find(digest(number), last); }

  std::unique_ptr<object_index> index;
  object_index_reader reader;
  indexed_object last;
};

/// A file as a stranger would hand it out.
class crafted_file {
public:
  crafted_file(uint64_t size_bytes, std::vector<uint64_t> words, int seals = F_SEAL_SHRINK)
    : fd_(memfd_create("crafted", MFD_ALLOW_SEALING)) {
    REQUIRE(ftruncate(fd_, static_cast<off_t>(size_bytes)) == 0);
    for (size_t i = 0; i < words.size() && (i + 1) * 8 <= size_bytes; ++i)
      REQUIRE(pwrite(fd_, &words[i], 8, static_cast<off_t>(i * 8)) == 8);
    REQUIRE(fcntl(fd_, F_ADD_SEALS, seals) == 0);
  }
  ~crafted_file() { close(fd_); }

  bool maps() const { return static_cast<bool>(object_index_reader::map(fd_)); }

private:
  int fd_;
};

} // namespace

TEST_CASE_FIXTURE(fixture, "what was put is found until it is erased") {
  CHECK(find(1) == found::no);
  auto entry = index->put(digest(1), place(5), 77, true);
  REQUIRE(entry);
  REQUIRE(find(1) == found::yes);
  CHECK(last.where == place(5));
  CHECK(last.checksum == 77);
  CHECK(last.sealed);
  CHECK(last.entry == *entry);
  CHECK(reader.still(last));
  CHECK(find(2) == found::no);
  CHECK(index->where(*entry) == place(5));
  index->erase(*entry);
  CHECK_FALSE(reader.still(last));
  CHECK(find(1) == found::no);
  CHECK(index->where(*entry).generation == 0);
  CHECK(index->objects() == 0);
}

TEST_CASE_FIXTURE(fixture, "a checksum that comes later is told") {
  auto entry = index->put(digest(1), place(5), 0, false);
  REQUIRE(find(1) == found::yes);
  CHECK_FALSE(last.sealed);
  index->seal(*entry, 9);
  CHECK_FALSE(reader.still(last)); // It says less than there is to know.
  REQUIRE(find(1) == found::yes);
  CHECK(last.sealed);
  CHECK(last.checksum == 9);
}

TEST_CASE_FIXTURE(fixture, "another object in the same entry is not the one that was found") {
  auto entry = index->put(digest(1), place(5, 1), 0, true);
  REQUIRE(find(1) == found::yes);
  auto before = last;
  index->erase(*entry);
  REQUIRE(index->put(digest(1), place(5, 2), 0, true) == entry);
  CHECK_FALSE(reader.still(before));
  REQUIRE(find(1) == found::yes);
  CHECK(last.where.generation == 2);
}

TEST_CASE_FIXTURE(fixture, "a frozen object is unknown, and then there as before or gone") {
  auto entry = index->put(digest(1), place(5), 0, true);
  REQUIRE(find(1) == found::yes);
  auto before = last;
  index->freeze(*entry);
  CHECK_FALSE(reader.still(before));
  CHECK(find(1) == found::unknown);
  index->thaw(*entry);
  CHECK(reader.still(before));
  CHECK(find(1) == found::yes);
  index->freeze(*entry);
  index->erase(*entry);
  CHECK(find(1) == found::no);
  CHECK_FALSE(reader.still(before));
}

TEST_CASE_FIXTURE(fixture, "a clear hides all at once, but for what is kept") {
  for (uint64_t i = 0; i < 5; ++i)
    index->put(digest(i), place(i), i, i % 2 == 0);
  REQUIRE(find(3) == found::yes);
  index->clear();
  index->keep(last.entry);
  for (uint64_t i = 0; i < 5; ++i)
    CHECK(find(i) == (i == 3 ? found::yes : found::no));
  REQUIRE(find(3) == found::yes);
  CHECK(last.checksum == 3);
  CHECK_FALSE(last.sealed);
  CHECK(index->objects() == 5);
}

TEST_CASE("a set that is full refuses, and says unknown until what it refused is gone") {
  fixture small{1}; // One set.
  std::vector<uint32_t> entries;
  for (uint64_t i = 0; i < 8; ++i)
    entries.push_back(small.index->put(digest(i), place(i), 0, true).value());
  CHECK(small.find(8) == found::no);
  CHECK_FALSE(small.index->put(digest(8), place(8), 0, true));
  CHECK_FALSE(small.index->put(digest(9), place(9), 0, true));
  CHECK(small.index->overflowed_sets() == 1);
  CHECK(small.index->refused() == 2);
  CHECK(small.find(8) == found::unknown);
  CHECK(small.find(99) == found::unknown);
  CHECK(small.find(7) == found::yes);
  small.index->erase(entries[3]);
  small.index->forget(digest(8));
  CHECK(small.find(99) == found::unknown);
  small.index->forget(digest(9));
  CHECK(small.find(99) == found::no);
  CHECK(small.index->overflowed_sets() == 0);
  CHECK(small.index->put(digest(10), place(10), 0, true) == entries[3]);
}

TEST_CASE("almost no set overflows, however full the index is") {
  fixture large{20'000};
  for (uint64_t i = 0; i < 20'000; ++i)
    large.index->put(digest(i), place(i), 0, true);
  CHECK(large.index->objects() + large.index->refused() == 20'000);
  CHECK(large.index->refused() < 20);
  uint64_t there = 0;
  for (uint64_t i = 0; i < 20'000; ++i)
    there += large.find(i) == found::yes && large.last.where == place(i);
  CHECK(there == large.index->objects());
}

TEST_CASE("sizes that cannot be are refused") {
  CHECK(!object_index::create(0));
  CHECK(!object_index::create(uint64_t{1} << 31));
  CHECK(!object_index::create(UINT64_MAX));
}

TEST_CASE_FIXTURE(fixture, "who has the descriptor can neither write nor resize") {
  auto fd = index->read_only_fd();
  CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  CHECK(ftruncate(fd, 0) != 0);
  // Also not by the way round.
  auto again = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR);
  if (again >= 0) {
    CHECK(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
    CHECK(write(again, "x", 1) < 0);
    CHECK(ftruncate(again, 0) != 0);
    close(again);
  }
}

TEST_CASE("a file that is no index of this version is refused") {
  using namespace index_format;
  constexpr auto format_version = index_format::version;
  constexpr auto format_magic = index_format::magic;
  auto size = total_bytes(3);
  CHECK(crafted_file(size, {format_magic, format_version, 3}).maps());
  CHECK_FALSE(crafted_file(size, {format_magic + 1, format_version, 3}).maps());
  CHECK_FALSE(crafted_file(size, {format_magic, format_version + 1, 3}).maps());
  for (uint64_t sets : {uint64_t{0}, uint64_t{2}, uint64_t{4}, max_sets, max_sets + 1,
                        uint64_t{1} << 32, (uint64_t{1} << 62) + 3, UINT64_MAX})
    CHECK_FALSE(crafted_file(size, {format_magic, format_version, sets}).maps());
  // (2^64 / 516 + 1) * 516 wraps round.
  CHECK_FALSE(crafted_file(size, {format_magic, format_version, UINT64_MAX / 516 + 1}).maps());
  CHECK_FALSE(crafted_file(size + 1, {format_magic, format_version, 3}).maps());
  CHECK_FALSE(crafted_file(size - 1, {format_magic, format_version, 3}).maps());
  CHECK_FALSE(crafted_file(0, {}).maps());
  CHECK_FALSE(crafted_file(8, {format_magic}).maps());
  // It could be truncated under the reader.
  CHECK_FALSE(crafted_file(size, {format_magic, format_version, 3}, 0).maps());
  CHECK(!object_index_reader::map(-1));
  auto other = open("/dev/null", O_RDONLY);
  CHECK(!object_index_reader::map(other));
  close(other);
}

TEST_CASE_FIXTURE(fixture, "readers see whole entries only, whatever the writer does") {
  // Each entry is of one number: its size and checksum must be those of its generation.
  const std::vector<index_digest> names{digest(0), digest(1)};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen{0};
  std::atomic<uint64_t> torn{0};
  std::vector<std::thread> threads;
  for (auto n = 0; n < 2; ++n)
    threads.emplace_back([&, n] {
      indexed_object got;
      for (uint64_t i = static_cast<uint64_t>(n); !stop; ++i) {
        if (reader.find(names[i % 2], got) != found::yes)
          continue;
        ++seen;
        auto& where = got.where;
        torn += where.generation % 2 != i % 2 || where.size_bytes != where.generation * 3
                || where.offset_bytes != where.generation * 4096
                || got.checksum != (got.sealed ? ~where.generation : 0);
      }
    });
  std::vector<std::optional<uint32_t>> entries(2);
  for (uint64_t generation = 4;
       generation < changes || (seen < 1000 && generation < 40'000'000); ++generation) {
    auto& entry = entries[generation % 2];
    if (entry)
      index->erase(*entry);
    entry = index->put(names[generation % 2], {generation * 4096, generation * 3, generation},
                       0, false);
    index->seal(*entry, ~generation);
    index->freeze(*entry);
    index->thaw(*entry);
  }
  stop = true;
  for (auto& thread : threads)
    thread.join();
  CHECK(torn == 0);
  CHECK(seen >= 1000);
}
