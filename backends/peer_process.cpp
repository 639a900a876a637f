#include "backends/peer_process.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace kvasir {

namespace {

namespace fs = std::filesystem;

/// As /proc/net/tcp prints an address: 32-bit words in this machine's order, then the port.
std::string proc_text(const sockaddr_storage& address) {
  std::array<char, 64> text{};
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof(v4));
    std::snprintf(text.data(), text.size(), "%08X:%04X", v4.sin_addr.s_addr,
                  ntohs(v4.sin_port));
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof(v6));
    std::array<uint32_t, 4> words{};
    std::memcpy(words.data(), &v6.sin6_addr, sizeof(v6.sin6_addr));
    std::snprintf(text.data(), text.size(), "%08X%08X%08X%08X:%04X", words[0], words[1],
                  words[2], words[3], ntohs(v6.sin6_port));
  }
  return text.data();
}

/// The inode of the socket with these ends, from its own point of view.
std::string inode_of(const std::string& local, const std::string& remote, const char* table) {
  std::ifstream file{table};
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields{line};
    std::string number, from, to, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> number >> from >> to >> state >> queues >> timer >> retransmits >> uid >> timeout
      >> inode;
    if (from == local && to == remote)
      return inode;
  }
  return {};
}

std::optional<int32_t> process_number(const std::string& name) {
  int32_t pid = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc{} && end == name.data() + name.size() ? std::optional{pid}
                                                                  : std::nullopt;
}

std::optional<process_id> started(int32_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string line;
  if (!std::getline(file, line))
    return std::nullopt;
  // The name in parentheses may hold anything; field 22 is the 20th behind it.
  std::istringstream fields{line.substr(line.rfind(')') + 1)};
  std::string skipped;
  for (auto i = 0; i < 19; ++i)
    fields >> skipped;
  process_id result{pid, 0};
  if (!(fields >> result.start_time))
    return std::nullopt;
  return result;
}

std::optional<int32_t> holder_of(const std::string& inode) {
  auto wanted = "socket:[" + inode + "]";
  std::error_code failure;
  for (auto& entry : fs::directory_iterator{"/proc", failure}) {
    auto pid = process_number(entry.path().filename());
    if (!pid)
      continue;
    fs::directory_iterator descriptors{entry.path() / "fd", failure};
    if (failure)
      continue;
    for (; descriptors != fs::directory_iterator{}; descriptors.increment(failure)) {
      if (failure)
        break;
      std::error_code gone;
      if (fs::read_symlink(descriptors->path(), gone) == wanted)
        return pid;
    }
  }
  return std::nullopt;
}

} // namespace

std::optional<process_id> peer_of_socket(int fd) {
  sockaddr_storage local{};
  sockaddr_storage remote{};
  socklen_t size = sizeof(local);
  if (fd < 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0)
    return std::nullopt;
  if (local.ss_family == AF_UNIX) {
    ucred who{};
    size = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
      return std::nullopt;
    return started(who.pid);
  }
  size = sizeof(remote);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &size) != 0)
    return std::nullopt;
  auto table = local.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
  auto inode = inode_of(proc_text(remote), proc_text(local), table);
  if (inode.empty() || inode == "0")
    return std::nullopt;
  auto pid = holder_of(inode);
  return pid ? started(*pid) : std::nullopt;
}

mapping_state maps_segment(process_id process, const std::string& segment) {
  if (process.pid == 0)
    return mapping_state::unknown;
  auto now = started(process.pid);
  if (!now || *now != process)
    return mapping_state::unmapped;
  std::ifstream file{"/proc/" + std::to_string(process.pid) + "/maps"};
  if (!file)
    return mapping_state::unknown;
  auto path = "/dev/shm/" + segment;
  std::string line;
  while (std::getline(file, line))
    if (line.find(path) != std::string::npos)
      return mapping_state::mapped;
  return mapping_state::unmapped;
}

process_id own_process() {
  return started(getpid()).value_or(process_id{});
}

} // namespace kvasir
