#include "backends/memory_limits.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace kvasir {

namespace {

/// Files of one cgroup version.
struct cgroup_files {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* reclaimable; // a line of memory.stat
};

constexpr cgroup_files version_1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                 "memory.usage_in_bytes", "total_inactive_file"};
constexpr cgroup_files version_2{"/sys/fs/cgroup", "memory.max", "memory.current",
                                 "inactive_file"};

/// Version 1 writes "no limit" as the largest multiple of the page size.
constexpr uint64_t no_limit = uint64_t{1} << 62;

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream in{path};
  uint64_t value = 0;
  if (in >> value) // "max" is no number
    return value;
  return std::nullopt;
}

/// The number after `label` at the start of a line.
std::optional<uint64_t> read_labelled(const std::string& path, const std::string& label) {
  std::ifstream in{path};
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream fields{line};
    std::string name;
    uint64_t value = 0;
    if (fields >> name >> value && name == label)
      return value;
  }
  return std::nullopt;
}

void take_smaller(memory_room& room, uint64_t available, std::string limited_by) {
  if (available < room.available_bytes)
    room = {available, std::move(limited_by)};
}

void check_cgroup(memory_room& room, const std::string& folder, const cgroup_files& files) {
  auto limit = read_number(folder + '/' + files.limit);
  auto usage = read_number(folder + '/' + files.usage);
  if (!limit || !usage || *limit >= no_limit)
    return;
  auto cache = read_labelled(folder + "/memory.stat", files.reclaimable).value_or(0);
  auto fixed = *usage - std::min(cache, *usage);
  take_smaller(room, *limit - std::min(fixed, *limit), "the memory cgroup " + folder);
}

/// From the process's own cgroup up to the mount: each level may be the one that is full. In a
/// container the path may be the host's, of which only the mount itself exists here.
void check_hierarchy(memory_room& room, const std::string& root, std::string path,
                     const cgroup_files& files) {
  for (;;) {
    if (path.find("..") == std::string::npos)
      check_cgroup(room, root + files.mount + path, files);
    if (path.empty())
      return;
    path.resize(path.rfind('/')); // a path starts with a slash
  }
}

} // namespace

memory_room available_memory(const std::string& root) {
  memory_room room{std::numeric_limits<uint64_t>::max(), "nothing"};
  if (auto kib = read_labelled(root + "/proc/meminfo", "MemAvailable:"))
    take_smaller(room, *kib * 1024, "the machine");
  std::ifstream in{root + "/proc/self/cgroup"};
  std::string line; // hierarchy:controllers:path
  while (std::getline(in, line)) {
    auto first = line.find(':');
    auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    auto controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    auto path = line.substr(second + 1);
    if (path.empty() || path.front() != '/')
      continue;
    if (path == "/")
      path.clear();
    if (controllers == ",,")
      check_hierarchy(room, root, path, version_2);
    else if (controllers.find(",memory,") != std::string::npos)
      check_hierarchy(room, root, path, version_1);
  }
  return room;
}

} // namespace kvasir
