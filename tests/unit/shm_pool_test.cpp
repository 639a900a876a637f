#include "backends/shm_pool.hpp"

#include "messages/errc.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>

namespace fs = std::filesystem;

using kvasir::errc;
using kvasir::shm_pool;

namespace {

constexpr uint64_t mib = 1 << 20;

std::string path_of(const std::string& name) {
  return "/dev/shm/" + name;
}

/// A name that no other run of this test uses.
std::string own_name(const char* suffix) {
  return "kvasir_test_" + std::to_string(::getpid()) + '_' + suffix;
}

shm_pool::options shared(uint64_t capacity_bytes, std::string name = {}) {
  return {capacity_bytes, shm_pool::sharing::on, std::move(name), mib};
}

std::unique_ptr<shm_pool> must_open(shm_pool::options opts) {
  auto pool = shm_pool::open(std::move(opts));
  INFO((pool ? std::string{} : to_string(pool.error())));
  REQUIRE(pool);
  return std::move(*pool);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs `body` in a child process. @returns its exit code, or minus the signal that ended it.
int in_child(const std::function<int()>& body) {
  auto pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0)
    ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Runs `body` in a child that has a /dev/shm of `size_bytes` of its own.
/// @returns its exit code; 77 if this process may not mount.
int with_own_shm(uint64_t size_bytes, const std::function<int()>& body) {
  return in_child([&] {
    auto size = "size=" + std::to_string(size_bytes);
    if (::unshare(CLONE_NEWNS) != 0
        || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr)
        || ::mount("tmpfs", "/dev/shm", "tmpfs", 0, size.c_str()) != 0)
      return 77;
    return body();
  });
}

/// A child process that opens a pool and then waits to be killed.
struct other_owner {
  pid_t pid = 0;
  std::string name;

  explicit other_owner(const std::string& explicit_name = {}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      auto pool = shm_pool::open(shared(mib, explicit_name));
      if (!pool || !(*pool)->grow())
        ::_exit(1);
      auto text = (*pool)->name() + '\n';
      if (::write(ends[1], text.data(), text.size()) < 0)
        ::_exit(1);
      for (;;)
        ::pause();
    }
    ::close(ends[1]);
    char c = 0;
    while (::read(ends[0], &c, 1) == 1 && c != '\n')
      name += c;
    ::close(ends[0]);
  }

  void kill() {
    if (pid == 0)
      return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }

  ~other_owner() { kill(); }
};

void check_unless_skipped(int rc) {
  if (rc == 77)
    MESSAGE("skipped: this process may not mount");
  else
    CHECK(rc == 0);
}

std::ptrdiff_t count_of_entries() {
  return std::distance(fs::directory_iterator("/dev/shm"), fs::directory_iterator{});
}

} // namespace

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

TEST_CASE("two pools have two names and two memories") {
  auto a = must_open(shared(mib));
  auto b = must_open(shared(mib));
  CHECK(a->name() != b->name());
  REQUIRE(a->grow());
  REQUIRE(b->grow());
  a->data()[5] = std::byte{1};
  CHECK(b->data()[5] == std::byte{0});
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
