#include "backends/segment_watch.hpp"

#include "messages/errc.hpp"
#include "unit/shm_fixture.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using kvasir::errc;
using kvasir::segment_watch;
using namespace shm_fixture;

namespace {

struct fixture {
  std::unique_ptr<shm_pool> pool = must_open(shared(mib));
  std::unique_ptr<segment_watch> uut = must_watch();

  std::unique_ptr<segment_watch> must_watch() const {
    auto result = segment_watch::open(pool->name());
    REQUIRE(result);
    return std::move(*result);
  }

  uint64_t opens_now() {
    uut->update();
    return uut->opens();
  }

  bool readable() const {
    pollfd polled{uut->fd(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
  }

  int open_segment() const { return ::open(path_of(pool->name()).c_str(), O_RDWR | O_CLOEXEC); }
};

} // namespace

TEST_CASE_FIXTURE(fixture, "the watch tells that somebody opened the segment, once told") {
  CHECK(opens_now() == 0);
  CHECK_FALSE(readable());
  auto fd = open_segment();
  REQUIRE(fd >= 0);
  CHECK(readable());
  CHECK(uut->opens() == 0);
  CHECK(opens_now() == 1);
  CHECK_FALSE(readable());
  ::close(fd);
  CHECK(opens_now() == 1);
  fd = open_segment();
  CHECK(opens_now() == 2);
  ::close(fd);
}

TEST_CASE_FIXTURE(fixture, "a process with pids of its own is seen, too") {
  auto rc = in_child([&] {
    if (::unshare(CLONE_NEWPID) != 0)
      return 77;
    auto child = ::fork(); // The first process of its namespace.
    if (child == 0)
      ::_exit(::getpid() == 1 && open_segment() >= 0 ? 0 : 1);
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  });
  check_unless_skipped(rc);
  CHECK(opens_now() == (rc == 77 ? 0 : 1));
}

TEST_CASE_FIXTURE(fixture, "looking at the name and growing the pool are no openings") {
  CHECK(pool->segment_present());
  REQUIRE(pool->grow());
  CHECK_FALSE(pool->open_elsewhere());
  struct stat found {};
  REQUIRE(::stat(path_of(pool->name()).c_str(), &found) == 0);
  CHECK(opens_now() == 0);
}

TEST_CASE_FIXTURE(fixture, "the watch follows a segment whose name was published again") {
  REQUIRE(::unlink(path_of(pool->name()).c_str()) == 0);
  REQUIRE(pool->republish());
  CHECK(opens_now() == 0);
  auto fd = open_segment();
  REQUIRE(fd >= 0);
  CHECK(opens_now() == 1);
  ::close(fd);
}

TEST_CASE_FIXTURE(fixture, "another file under the segment's name is not the segment") {
  REQUIRE(::unlink(path_of(pool->name()).c_str()) == 0);
  auto stranger
    = ::open(path_of(pool->name()).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  REQUIRE(stranger >= 0);
  CHECK(opens_now() == 0);
  ::unlink(path_of(pool->name()).c_str());
  ::close(stranger);
}

TEST_CASE("a segment that is not there cannot be watched") {
  auto none = segment_watch::open(own_name("none"));
  REQUIRE_FALSE(none);
  CHECK(none.error() == errc::io_error);
  CHECK(contains(to_string(none.error()), own_name("none")));
}

TEST_CASE_FIXTURE(fixture, "open elsewhere means open or mapped by anybody but the pool") {
  CHECK_FALSE(pool->open_elsewhere());
  for (auto flags : {O_RDWR, O_RDONLY}) {
    auto fd = ::open(path_of(pool->name()).c_str(), flags | O_CLOEXEC);
    REQUIRE(fd >= 0);
    CHECK(pool->open_elsewhere());
    auto mapped = ::mmap(nullptr, mib, PROT_READ, MAP_SHARED, fd, 0);
    REQUIRE(mapped != MAP_FAILED);
    ::close(fd);
    CHECK(pool->open_elsewhere());
    ::munmap(mapped, mib);
    CHECK_FALSE(pool->open_elsewhere());
  }
  auto off = shared(mib);
  off.mode = shm_pool::sharing::off;
  CHECK_FALSE(must_open(off)->open_elsewhere());
}

TEST_CASE_FIXTURE(fixture,
                  "asking whether it is open elsewhere neither fails nor kills an opener") {
  constexpr auto rounds = 2000;
  auto opener = ::fork();
  REQUIRE(opener >= 0);
  if (opener == 0) {
    for (auto i = 0; i < rounds; ++i) {
      auto fd = open_segment();
      if (fd < 0)
        ::_exit(1);
      ::close(fd);
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(opener, &status, WNOHANG) == 0)
    pool->open_elsewhere();
  CHECK(status == 0);
  CHECK_FALSE(pool->open_elsewhere());
}
