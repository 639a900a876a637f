// The pool's segment among others who use /dev/shm.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

#include <sys/mman.h>

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace fs = std::filesystem;

namespace {

constexpr uid_t stranger = 1001;

bool is_root() {
  return geteuid() == 0;
}

/// Names in /dev/shm that one test makes; removed with this object.
class squatters {
public:
  ~squatters() {
    for (auto& path : paths_) {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  }

  fs::path path(const std::string& name) { return paths_.emplace_back("/dev/shm/" + name); }

  fs::path file(const std::string& name, const std::string& content = {}) {
    auto made = path(name);
    std::ofstream{made} << content;
    return made;
  }

private:
  std::vector<fs::path> paths_;
};

std::string unique(const std::string& stem) {
  static int last = 0;
  return stem + std::to_string(getpid()) + "_" + std::to_string(++last);
}

/// Starts kvasird in a mount namespace whose /dev/shm has 8 MiB.
std::vector<std::string> in_tiny_shm(std::vector<std::string> arguments) {
  std::vector<std::string> result{
    "-m", "/bin/sh", "-c", "mount -t tmpfs -o size=8m tmpfs /dev/shm && exec \"$0\" \"$@\"",
    std::string{KVASIR_BIN_DIR} + "/kvasird"};
  result.insert(result.end(), arguments.begin(), arguments.end());
  return result;
}

bool can_unshare() {
  if (is_root() && run("/usr/bin/unshare", {"-m", "/bin/true"}).exit_code == 0)
    return true;
  MESSAGE("skipped: a mount namespace of its own needs root");
  return false;
}

std::string content(const fs::path& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

} // namespace

TEST_CASE("a name that is taken is refused with path and owner, and left alone") {
  squatters others;
  auto target = others.file(unique("target"), "untouched");
  struct squat {
    std::string name;
    std::string uid;
  };
  std::vector<squat> taken;
  auto add = [&](const std::string& stem, auto make) {
    auto name = unique(stem);
    auto path = others.path("lmcache_l1_pool_" + name);
    make(path);
    taken.push_back({name, std::to_string(geteuid())});
    return path;
  };
  add("symlink", [&](const fs::path& path) { fs::create_symlink(target, path); });
  add("dangling", [&](const fs::path& path) { fs::create_symlink("/dev/shm/nowhere", path); });
  add("directory", [&](const fs::path& path) { fs::create_directory(path); });
  add("file", [&](const fs::path& path) { std::ofstream{path} << "mine"; });
  add("fifo", [&](const fs::path& path) { REQUIRE(mkfifo(path.c_str(), 0600) == 0); });
  if (is_root()) {
    auto path = add("foreign", [&](const fs::path& made) {
      std::ofstream{made} << "mine";
      REQUIRE(chown(made.c_str(), stranger, stranger) == 0);
      fs::permissions(made, fs::perms{0600});
    });
    taken.back().uid = std::to_string(stranger);
  } else {
    MESSAGE("skipped in part: a file of another user needs root");
  }
  for (auto& [name, uid] : taken)
    for (std::string mode : {"on", "auto"}) {
      CAPTURE(name);
      CAPTURE(mode);
      auto path = "/dev/shm/lmcache_l1_pool_" + name;
      auto ended = run("kvasird", {"--lm-port", "0", "--mp-port", "0", "--http-port", "0",
                                   "--pool-size", "16MiB", "--shm", mode, "--shm-name", name});
      CHECK(ended.exit_code == 1);
      CHECK(ended.took < 10s); // Two asked for.
      CHECK(ended.out.empty());
      CHECK_MESSAGE(line_count(ended.err) == 1, ended.err);
      CHECK(ended.err.find(path) != std::string::npos);
      CHECK(ended.err.find("uid " + uid) != std::string::npos);
      struct stat found {};
      CHECK(lstat(path.c_str(), &found) == 0);
    }
  CHECK(content(target) == "untouched");
  CHECK_FALSE(fs::exists("/dev/shm/nowhere"));
}

TEST_CASE("a start with the default name minds no squatter") {
  squatters others;
  auto target = others.file(unique("target"), "untouched");
  auto uid = std::to_string(geteuid());
  std::vector<fs::path> left;
  for (std::string kind : {"lmcache_l1_pool_kvasir_", "kvasir_anchor_"}) {
    auto stem = kind + uid + "_" + std::to_string(getpid());
    fs::create_symlink(target, left.emplace_back(others.path(stem + "symlink")));
    fs::create_directory(left.emplace_back(others.path(stem + "directory")));
    REQUIRE(mkfifo(left.emplace_back(others.path(stem + "fifo")).c_str(), 0600) == 0);
    if (is_root()) {
      left.push_back(others.file(stem + "foreign", "mine"));
      REQUIRE(chown(left.back().c_str(), stranger, stranger) == 0);
    }
  }
  running_daemon served{{"--shm", "on"}};
  auto names = served.segment_paths();
  CHECK(names.size() == 2);
  for (auto& name : names) {
    struct stat found {};
    REQUIRE(lstat(name.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0600);
  }
  for (auto& path : left) {
    CAPTURE(path.string());
    struct stat found {};
    CHECK(lstat(path.c_str(), &found) == 0);
  }
  CHECK(content(target) == "untouched");
  CHECK(served.stop().exit_code == 0);
}

TEST_CASE("a segment that another process unlinks is published again") {
  running_daemon served{{"--shm", "on"}};
  lm_wire client{served.lm_port()};
  REQUIRE(client.put("m@1@0@1@half", value_of(1, mib)));
  auto name = status_of(served)["pool"]["name"].get<std::string>();
  auto path = "/dev/shm/" + name;
  for (uint64_t round = 1; round <= 2; ++round) {
    REQUIRE(unlink(path.c_str()) == 0);
    wait_until([&] { return served.metric("kvasir_segment_lost_total") == round; });
    CHECK(status_of(served)["pool"]["segment_lost"] == round);
    CHECK(fs::exists(path));
  }
  CHECK(served.segment_paths().size() == 2); // The same memory as before.
  CHECK(served.log().find("another process unlinked the pool's segment") != std::string::npos);
  CHECK(client.get("m@1@0@1@half") == value_of(1, mib));
  CHECK(served.get("/healthz").status == 200);
  CHECK(served.stop().exit_code == 0);
}

TEST_CASE("a segment that cannot be published again is told and counted once") {
  running_daemon served{{"--shm", "on"}};
  auto lost = [&] {
    return served.metric("kvasir_segment_lost_total");
  };
  for (auto& path : served.segment_paths())
    REQUIRE(unlink(path.c_str()) == 0);
  wait_until([&] { return lost() == 1; });
  // The name is looked at once a second: the next looks add nothing.
  auto seen = std::chrono::steady_clock::now();
  wait_until([&] { return lost() > 1 || std::chrono::steady_clock::now() - seen > 2500ms; });
  CHECK(lost() == 1);
  lm_wire client{served.lm_port()};
  CHECK(client.put("m@1@0@1@half", value_of(1, 1000)));
  CHECK(served.stop().exit_code == 0);
}

TEST_CASE("Python's resource tracker unlinks what it only attached to") {
  running_daemon served{{"--shm", "on"}};
  auto name = status_of(served)["pool"]["name"].get<std::string>();
  auto attached
    = run("/usr/bin/env", {"python3", "-c",
                           "from multiprocessing import shared_memory as s; import sys\n"
                           "s.SharedMemory(name=sys.argv[1], create=False).close()",
                           name});
  if (attached.exit_code != 0) {
    MESSAGE("skipped: no python3 that attaches to a segment: " << attached.err);
    return;
  }
  // A process of its own unlinks it, perhaps only after that one ended.
  wait_until([&] { return served.metric("kvasir_segment_lost_total") == 1; });
  CHECK(served.segment_paths().size() == 2);
  auto next
    = run("/usr/bin/env",
          {"python3", "-c", "import sys; open('/dev/shm/' + sys.argv[1], 'rb').read(1)", name});
  CHECK(next.exit_code == 0);
  CHECK(served.get("/healthz").status == 200);
}

TEST_CASE("an old view of the pool stays valid after a restart") {
  constexpr size_t size = 16 * mib;
  running_daemon first{{"--pool-size", "16MiB", "--shm", "on"}};
  wait_for_growth(first);
  lm_wire{first.lm_port()}.put("m@1@0@1@half", value_of(1, mib));
  auto name = status_of(first)["pool"]["name"].get<std::string>();
  auto fd = open(("/dev/shm/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  auto view = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  REQUIRE(view != MAP_FAILED);
  CHECK(first.stop().exit_code == 0);
  running_daemon second{{"--pool-size", "16MiB", "--shm", "on"}};
  CHECK(status_of(second)["pool"]["name"] != name);
  auto bytes_seen = static_cast<const volatile std::byte*>(view);
  for (size_t at = 0; at < size; at += 4096)
    [[maybe_unused]] auto touched = bytes_seen[at];
  CHECK(is_value({static_cast<const std::byte*>(view), mib}, 1));
  munmap(view, size);
}

TEST_CASE("a /dev/shm that is too small: refused if demanded, private memory otherwise") {
  if (!can_unshare())
    return;
  auto refused
    = run("/usr/bin/unshare", in_tiny_shm({"--lm-port", "0", "--mp-port", "0", "--http-port",
                                           "0", "--pool-size", "64MiB", "--shm", "on"}));
  CHECK(refused.exit_code == 1);
  CHECK(refused.out.empty());
  CHECK_MESSAGE(line_count(refused.err) == 1, refused.err);
  CHECK(refused.err.find("/dev/shm") != std::string::npos);

  running_daemon served{in_tiny_shm({"--shm", "auto"}), {}, "/usr/bin/unshare"};
  wait_for_growth(served);
  auto pool = status_of(served)["pool"];
  CHECK(pool["name"] == "");
  CHECK(pool["fallback_reason"].get<std::string>().find("/dev/shm") != std::string::npos);
  CHECK(served.log().find("the pool is private memory") != std::string::npos);
  CHECK(served.metric("kvasir_pool_shared") == 0);
  lm_wire client{served.lm_port()};
  for (uint64_t i = 0; i < 32; ++i)
    REQUIRE(client.put(numbered_key("m", i), value_of(i, mib)));
  CHECK(client.get(numbered_key("m", 31)) == value_of(31, mib));
  CHECK(served.stop().exit_code == 0);
}
