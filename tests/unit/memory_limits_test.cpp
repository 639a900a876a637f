#include "backends/memory_limits.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace {

/// A folder that stands for "/".
struct fake_root {
  std::string path;

  fake_root() {
    char name[] = "/tmp/kvasir_root_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
    write("/proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:    1000 kB\n");
  }
  ~fake_root() { fs::remove_all(path); }
  fake_root(const fake_root&) = delete;
  fake_root& operator=(const fake_root&) = delete;

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path{path + file}.parent_path());
    std::ofstream{path + file} << text;
  }
};

} // namespace

TEST_CASE("without a cgroup limit the machine's memory counts") {
  fake_root root;
  root.write("/proc/self/cgroup", "0::/a\n");
  root.write("/sys/fs/cgroup/a/memory.max", "max\n");
  root.write("/sys/fs/cgroup/a/memory.current", "500\n");
  auto room = kvasir::available_memory(root.path);
  CHECK(room.available_bytes == 1024000);
  CHECK(room.limited_by == "the machine");
}

TEST_CASE("the tightest cgroup up to the root counts, without its file cache") {
  fake_root root;
  root.write("/proc/self/cgroup", "0::/a/b\n");
  root.write("/sys/fs/cgroup/a/b/memory.max", "600000\n");
  root.write("/sys/fs/cgroup/a/b/memory.current", "100000\n");
  root.write("/sys/fs/cgroup/a/memory.max", "400000\n");
  root.write("/sys/fs/cgroup/a/memory.current", "300000\n");
  root.write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 50000\n");
  auto room = kvasir::available_memory(root.path);
  CHECK(room.available_bytes == 150000);
  CHECK(room.limited_by == "the memory cgroup " + root.path + "/sys/fs/cgroup/a");
}

TEST_CASE("a version 1 cgroup counts, its huge number means no limit") {
  fake_root root;
  root.write("/proc/self/cgroup", "9:cpu,memory:/x\n0::/\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "123\n");
  CHECK(kvasir::available_memory(root.path).available_bytes == 1024000);
  root.write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n");
  root.write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "2000\n");
  CHECK(kvasir::available_memory(root.path).available_bytes == 0);
}

TEST_CASE("what cannot be read sets no bound") {
  CHECK(kvasir::available_memory("/nonexistent").limited_by == "nothing");
  CHECK(kvasir::available_memory().available_bytes > 0);
}
