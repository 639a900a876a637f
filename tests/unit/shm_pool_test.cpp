#include "backends/shm_pool.hpp"

#include "messages/errc.hpp"
#include "unit/shm_fixture.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

namespace fs = std::filesystem;

using kvasir::errc;
using kvasir::shm_pool;
using namespace shm_fixture;

TEST_CASE("a shared pool is a file of mode 0600 under LMCache's prefix, gone at the end") {
  std::string name;
  {
    auto uut = must_open(shared(4 * mib + 5));
    name = uut->name();
    CHECK(name.starts_with("lmcache_l1_pool_kvasir_" + std::to_string(::geteuid()) + '_'));
    CHECK(uut->is_shared());
    CHECK(uut->segment_present());
    CHECK(uut->fallback_reason().empty());
    CHECK(uut->capacity_bytes() == 4 * mib);
    struct stat st {};
    REQUIRE(::stat(path_of(name).c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0600);
    CHECK(st.st_size == 4 * mib);
  }
  CHECK_FALSE(fs::exists(path_of(name)));
}

TEST_CASE("a withdrawn pool has no name any more, and its memory stays") {
  auto pool = must_open(shared(2 * mib));
  REQUIRE(pool->grow());
  pool->data()[5] = std::byte{7};
  auto path = path_of(pool->name());
  REQUIRE(std::filesystem::exists(path));
  pool->withdraw();
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_FALSE(pool->segment_present());
  CHECK_FALSE(pool->republish());
  CHECK(pool->data()[5] == std::byte{7});
  pool->withdraw();
}

TEST_CASE("a client that maps the segment sees what the owner wrote") {
  auto uut = must_open(shared(2 * mib, own_name("map")));
  REQUIRE(uut->grow());
  std::memset(uut->data(), 0x5a, mib);
  auto fd = ::open(path_of(uut->name()).c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  auto* seen
    = static_cast<char*>(::mmap(nullptr, 2 * mib, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ::close(fd);
  REQUIRE(seen != MAP_FAILED);
  CHECK(seen[mib - 1] == 0x5a);
  uut.reset(); // the owner ends: the client's view stays valid
  CHECK(seen[mib - 1] == 0x5a);
  seen[0] = 1;
  ::munmap(seen, 2 * mib);
}

TEST_CASE("memory becomes usable step by step, reads as zero, and ends at the capacity") {
  for (auto mode : {shm_pool::sharing::on, shm_pool::sharing::off}) {
    auto uut = must_open({2 * mib + mib / 2, mode, {}, mib});
    CHECK(uut->is_shared() == (mode == shm_pool::sharing::on));
    CHECK(uut->usable_bytes() == 0);
    for (uint64_t expected : {mib, 2 * mib, 2 * mib + mib / 2, 2 * mib + mib / 2}) {
      auto usable = uut->grow();
      REQUIRE(usable);
      CHECK(*usable == expected);
      CHECK(uut->usable_bytes() == expected);
    }
    std::span all{uut->data(), uut->usable_bytes()};
    CHECK(std::all_of(all.begin(), all.end(), [](auto b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("growing allocates the step's blocks and no more") {
  auto uut = must_open(shared(8 * mib));
  REQUIRE(uut->grow());
  struct stat st {};
  REQUIRE(::stat(path_of(uut->name()).c_str(), &st) == 0);
  CHECK(static_cast<uint64_t>(st.st_blocks) * 512 == mib);
}

TEST_CASE("a pool of less than a page is refused with both numbers") {
  for (uint64_t capacity_bytes : {uint64_t{0}, uint64_t{4095}}) {
    auto pool = shm_pool::open({capacity_bytes});
    REQUIRE_FALSE(pool);
    CHECK(pool.error() == errc::invalid_argument);
    CHECK(contains(to_string(pool.error()), std::to_string(capacity_bytes) + " bytes"));
    CHECK(contains(to_string(pool.error()), "4096"));
  }
}

TEST_CASE("a pool larger than the machine is refused in every mode, with both numbers") {
  constexpr auto too_large = uint64_t{1} << 50;
  for (auto mode :
       {shm_pool::sharing::on, shm_pool::sharing::automatic, shm_pool::sharing::off}) {
    auto pool = shm_pool::open({too_large, mode});
    REQUIRE_FALSE(pool);
    CHECK(pool.error() == errc::io_error);
    CHECK(contains(to_string(pool.error()), std::to_string(too_large) + " bytes"));
    CHECK(contains(to_string(pool.error()), " bytes free"));
  }
}

TEST_CASE("a /dev/shm that is too small is refused, or replaced by private memory") {
  auto rc = with_own_shm(4 * mib, [] {
    auto on = shm_pool::open(shared(8 * mib));
    if (on || on.error() != errc::io_error)
      return 1;
    auto text = to_string(on.error());
    if (!contains(text, "8388608 bytes") || !contains(text, "4194304 bytes"))
      return 2;
    auto automatic = shm_pool::open({8 * mib});
    if (!automatic || (*automatic)->is_shared() || !(*automatic)->name().empty())
      return 3;
    if (!contains((*automatic)->fallback_reason(), "4194304 bytes"))
      return 4;
    if ((*automatic)->segment_present() || (*automatic)->republish())
      return 5;
    if (!(*automatic)->grow())
      return 6;
    (*automatic)->data()[8 * mib - 1] = std::byte{1};
    return fs::is_empty("/dev/shm") ? 0 : 7;
  });
  check_unless_skipped(rc);
}

TEST_CASE("a /dev/shm that fills up meanwhile fails the growth and harms nothing") {
  auto rc = with_own_shm(4 * mib, [] {
    auto pool = shm_pool::open(shared(3 * mib));
    if (!pool || !(*pool)->grow())
      return 1;
    std::memset((*pool)->data(), 1, mib);
    auto hog = ::open("/dev/shm/hog", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (::posix_fallocate(hog, 0, 5 * mib / 2) != 0)
      return 2;
    auto failed = (*pool)->grow();
    if (failed || failed.error() != errc::out_of_memory || (*pool)->usable_bytes() != mib)
      return 3;
    if ((*pool)->data()[mib - 1] != std::byte{1})
      return 4;
    ::unlink("/dev/shm/hog");
    ::close(hog);
    auto grown = (*pool)->grow();
    if (!grown || *grown != 2 * mib)
      return 5;
    std::memset((*pool)->data(), 2, 2 * mib);
    return 0;
  });
  check_unless_skipped(rc);
}
