#include "backends/shm_pool.hpp"
#include "messages/errc.hpp"
#include "unit/shm_fixture.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

using kvasir::errc;
using kvasir::shm_pool;
using namespace shm_fixture;

TEST_CASE("two pools have two names and two memories") {
  auto a = must_open(shared(mib));
  auto b = must_open(shared(mib));
  CHECK(a->name() != b->name());
  REQUIRE(a->grow());
  REQUIRE(b->grow());
  a->data()[5] = std::byte{1};
  CHECK(b->data()[5] == std::byte{0});
}

TEST_CASE("a name that cannot be a file in /dev/shm is refused") {
  for (std::string name : {"a/b", "..", ".", "/", "//x"}) {
    CAPTURE(name);
    if (name == "/")
      name += std::string(300, 'x');
    auto pool = shm_pool::open(shared(mib, name));
    REQUIRE_FALSE(pool);
    CHECK(pool.error() == errc::invalid_argument);
  }
}

TEST_CASE("the next start removes what a killed owner left") {
  other_owner owner;
  REQUIRE_FALSE(owner.name.empty());
  REQUIRE(fs::exists(path_of(owner.name)));
  owner.kill();
  auto uut = must_open(shared(mib));
  CHECK_FALSE(fs::exists(path_of(owner.name)));
  CHECK(uut->segment_present());
}

TEST_CASE("an explicit name of a killed owner is free for the next start") {
  auto name = own_name("stale");
  other_owner owner{name};
  REQUIRE(owner.name == name);
  owner.kill();
  auto uut = must_open(shared(mib, name));
  CHECK(uut->name() == name);
  CHECK(uut->segment_present());
}

TEST_CASE("a living owner's segment is left alone") {
  auto name = own_name("alive");
  other_owner owner{name};
  other_owner nameless;
  auto uut = must_open(shared(mib));
  CHECK(fs::exists(path_of(name)));
  CHECK(fs::exists(path_of(nameless.name)));
  for (auto mode : {shm_pool::sharing::on, shm_pool::sharing::automatic}) {
    auto refused = shm_pool::open({mib, mode, name});
    REQUIRE_FALSE(refused);
    CHECK(contains(to_string(refused.error()), path_of(name)));
  }
  CHECK(fs::exists(path_of(name)));
}

TEST_CASE("an owner killed at any moment of its start leaves nothing for long") {
  auto rc = with_own_shm(64 * mib, [] {
    for (auto round = 0; round < 20; ++round) {
      auto child = ::fork();
      if (child == 0) {
        for (;;) {
          if (!shm_pool::open(shared(mib)))
            ::_exit(1);
        }
      }
      for (auto spin = 0; spin < 5 * round; ++spin)
        ::sched_yield();
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      auto pool = shm_pool::open(shared(mib));
      if (!pool || count_of_entries() != 2)
        return 1;
    }
    return count_of_entries() == 0 ? 0 : 2;
  });
  check_unless_skipped(rc);
}

TEST_CASE("the sweep reports each name that it removed") {
  auto rc = with_own_shm(64 * mib, [] {
    auto child = ::fork();
    if (child == 0) {
      auto a = shm_pool::open(shared(mib));
      auto b = shm_pool::open(shared(mib, "explicit"));
      if (a && b)
        ::kill(::getpid(), SIGKILL);
      ::_exit(1);
    }
    ::waitpid(child, nullptr, 0);
    if (count_of_entries() != 4)
      return 1;
    auto pool = shm_pool::open(shared(mib));
    if (!pool || count_of_entries() != 2)
      return 2;
    const auto& swept = (*pool)->swept();
    return swept.size() == 4 && std::count(swept.begin(), swept.end(), "explicit") == 1 ? 0 : 3;
  });
  check_unless_skipped(rc);
}

TEST_CASE("whatever else has the explicit name is named, not followed and not removed") {
  auto name = own_name("squatter");
  auto path = path_of(name);
  auto target = fs::temp_directory_path() / name;
  std::ofstream{target} << "precious";
  auto refused_as = [&](const char* kind) {
    for (auto mode : {shm_pool::sharing::on, shm_pool::sharing::automatic}) {
      auto pool = shm_pool::open({mib, mode, name});
      REQUIRE_FALSE(pool);
      CHECK(pool.error() == errc::io_error);
      auto text = to_string(pool.error());
      CAPTURE(text);
      CHECK(contains(text, path));
      CHECK(contains(text, kind));
      CHECK(contains(text, "uid " + std::to_string(::geteuid())));
    }
    CHECK(fs::symlink_status(path).type() != fs::file_type::not_found);
    fs::remove_all(path);
  };
  fs::create_directory(path);
  refused_as("a directory");
  fs::create_symlink(target, path);
  refused_as("a symbolic link");
  fs::create_symlink("/nonexistent", path);
  refused_as("a symbolic link");
  std::ofstream{path} << "foreign";
  refused_as("a file");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  refused_as("a special file");
  CHECK(fs::file_size(target) == 8);
  fs::remove(target);
}

TEST_CASE("the sweep passes over links, folders and pipes with our prefix without waiting") {
  auto prefix = path_of("lmcache_l1_pool_kvasir_" + std::to_string(::geteuid()) + "_test_");
  auto target = fs::temp_directory_path() / own_name("target");
  std::ofstream{target} << "precious";
  fs::create_symlink(target, prefix + "link");
  fs::create_directory(prefix + "folder");
  REQUIRE(::mkfifo((prefix + "pipe").c_str(), 0600) == 0);
  auto uut = must_open(shared(mib));
  CHECK(fs::file_size(target) == 8);
  for (auto kind : {"link", "folder", "pipe"})
    CHECK(fs::remove(prefix + kind));
  fs::remove(target);
}

TEST_CASE("a stranger's file with our prefix is left alone") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can give a file to another user");
    return;
  }
  auto path = path_of("lmcache_l1_pool_kvasir_0_test_stranger");
  std::ofstream{path} << "x";
  REQUIRE(::chown(path.c_str(), 1001, 1001) == 0);
  auto uut = must_open(shared(mib));
  CHECK(fs::remove(path));
}

TEST_CASE("a name unlinked by another process is noticed, tolerated and published again") {
  auto uut = must_open(shared(2 * mib));
  auto path = path_of(uut->name());
  REQUIRE(uut->grow());
  uut->data()[0] = std::byte{7};
  REQUIRE(::unlink(path.c_str()) == 0);
  CHECK_FALSE(uut->segment_present());
  CHECK(uut->data()[0] == std::byte{7});
  CHECK(uut->grow());
  CHECK(uut->republish());
  CHECK(uut->segment_present());
  CHECK(uut->republish()); // there already

  REQUIRE(::unlink(path.c_str()) == 0);
  std::ofstream{path} << "another";
  CHECK_FALSE(uut->segment_present());
  CHECK_FALSE(uut->republish());
  uut.reset(); // must not take the other's file away
  CHECK(fs::file_size(path) == 7);
  fs::remove(path);
}

TEST_CASE("a forked child that drops the pool leaves the name") {
  auto uut = must_open(shared(mib));
  CHECK(in_child([&] {
          uut.reset();
          return 0;
        })
        == 0);
  CHECK(uut->segment_present());
}

TEST_CASE("room that only a dead owner takes is there for the next start") {
  auto rc = with_own_shm(4 * mib, [] {
    auto child = ::fork();
    if (child == 0) {
      auto pool = shm_pool::open({4 * mib, shm_pool::sharing::on, {}, 4 * mib});
      if (pool && (*pool)->grow())
        ::kill(::getpid(), SIGKILL);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFSIGNALED(status))
      return 1;
    auto pool = shm_pool::open({4 * mib, shm_pool::sharing::on, {}, 4 * mib});
    return pool && (*pool)->grow() ? 0 : 2;
  });
  check_unless_skipped(rc);
}
