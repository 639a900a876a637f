#include "backends/peer_process.hpp"

#include "backends/segment_names.hpp"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace kvasir {

namespace {

struct file_closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
  void operator()(DIR* dir) const { closedir(dir); }
};
using file_ptr = std::unique_ptr<std::FILE, file_closer>;
using dir_ptr = std::unique_ptr<DIR, file_closer>;

/// The lines of a file in /proc.
class lines_of {
public:
  explicit lines_of(const std::string& path, char end = '\n')
    : file_(std::fopen(path.c_str(), "re")),
      error_(file_ ? 0 : errno),
      end_(end) {}
  ~lines_of() { std::free(line_); }
  lines_of(const lines_of&) = delete;
  lines_of& operator=(const lines_of&) = delete;

  /// @returns the next line without its end, valid until the next call; null data at the end.
  std::string_view next() {
    auto got = file_ ? getdelim(&line_, &room_, end_, file_.get()) : -1;
    if (got < 0) {
      if (file_ && std::ferror(file_.get()) != 0)
        error_ = errno;
      return {};
    }
    std::string_view line{line_, static_cast<size_t>(got)};
    return line.ends_with(end_) ? line.substr(0, line.size() - 1) : line;
  }

  /// errno of what ended the lines; 0: the file's end.
  int error() const { return error_; }

private:
  file_ptr file_;
  int error_;
  char end_;
  char* line_ = nullptr;
  size_t room_ = 0;
};

/// Takes the next word off `text`; empty if there is none.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  auto word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

template <class T>
bool read_number(std::string_view text, T& to, int base = 10) {
  auto end = text.data() + text.size();
  auto [stopped, failed] = std::from_chars(text.data(), end, to, base);
  return failed == std::errc{} && stopped == end;
}

std::string proc_path(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + '/' + file;
}

struct process_facts {
  uint64_t start_time = 0;
  uint64_t threads = 0;
};

std::optional<process_facts> facts_of(pid_t pid) {
  // The second field, the program's name in parentheses, may hold anything: count from its end.
  lines_of stat{proc_path(pid, "stat"), '\0'};
  auto rest = stat.next();
  auto name_end = rest.rfind(')');
  if (name_end == std::string_view::npos)
    return std::nullopt;
  rest.remove_prefix(name_end + 1);
  process_facts result;
  for (auto field = 3; field < 20; ++field)
    take_word(rest);
  if (!read_number(take_word(rest), result.threads))
    return std::nullopt;
  take_word(rest);
  if (!read_number(take_word(rest), result.start_time))
    return std::nullopt;
  return result;
}

// -- who has the other end ------------------------------------------------------------------

/// IPv4 as an IPv4-mapped IPv6 address, so that both ends compare equal whatever each calls it.
struct endpoint {
  std::array<uint8_t, 16> address{};
  uint16_t port = 0;

  bool operator==(const endpoint&) const = default;
};

void map_ipv4(endpoint& to, const void* ipv4) {
  to.address.fill(0);
  to.address[10] = to.address[11] = 0xff;
  std::memcpy(&to.address[12], ipv4, 4);
}

template <class Function>
std::optional<endpoint> endpoint_of(int fd, Function name) {
  sockaddr_storage found{};
  socklen_t size = sizeof(found);
  endpoint result;
  if (name(fd, reinterpret_cast<sockaddr*>(&found), &size) != 0)
    return std::nullopt;
  if (found.ss_family == AF_INET) {
    auto& ipv4 = reinterpret_cast<const sockaddr_in&>(found);
    map_ipv4(result, &ipv4.sin_addr);
    result.port = ntohs(ipv4.sin_port);
    return result;
  }
  if (found.ss_family != AF_INET6)
    return std::nullopt;
  auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(found);
  std::memcpy(result.address.data(), &ipv6.sin6_addr, result.address.size());
  result.port = ntohs(ipv6.sin6_port);
  return result;
}

/// "0100007F:1F90": the address is written as 32-bit words of this machine's byte order.
std::optional<endpoint> read_endpoint(std::string_view text) {
  endpoint result;
  auto colon = text.find(':');
  if ((colon != 8 && colon != 32) || !read_number(text.substr(colon + 1), result.port, 16))
    return std::nullopt;
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < colon / 8; ++i)
    if (!read_number(text.substr(i * 8, 8), words[i], 16))
      return std::nullopt;
  if (colon == 8)
    map_ipv4(result, words.data());
  else
    std::memcpy(result.address.data(), words.data(), result.address.size());
  return result;
}

/// @returns the inode of the socket from `local` to `remote`, 0 if none is found.
uint64_t find_socket(const char* table, const endpoint& local, const endpoint& remote) {
  lines_of lines{table};
  lines.next(); // Titles.
  for (size_t count = 0; count < max_sockets; ++count) {
    auto rest = lines.next();
    if (rest.data() == nullptr)
      return 0;
    take_word(rest); // Number of the line.
    if (read_endpoint(take_word(rest)) != local || read_endpoint(take_word(rest)) != remote)
      continue;
    for (auto field = 3; field < 9; ++field)
      take_word(rest);
    uint64_t inode = 0; // 0 also if no process has it any more.
    return read_number(take_word(rest), inode) ? inode : 0;
  }
  return 0;
}

/// Whether `link`, below the folder open as `dir`, leads to `target`.
bool leads_to(int dir, const char* link, const std::string& target) {
  std::array<char, 64> text{};
  auto size = readlinkat(dir, link, text.data(), text.size());
  return size > 0 && std::string_view{text.data(), static_cast<size_t>(size)} == target;
}

/// The process if it has `target` open.
std::optional<process_id> owner_if(pid_t pid, const std::string& target, size_t& files) {
  dir_ptr folder{opendir(proc_path(pid, "fd").c_str())};
  while (auto entry = folder ? readdir(folder.get()) : nullptr) {
    if (++files > max_files)
      return std::nullopt;
    if (!leads_to(dirfd(folder.get()), entry->d_name, target))
      continue;
    auto process = process_of(pid);
    // Once more: the pid may have been reused before we read its start.
    if (process && leads_to(dirfd(folder.get()), entry->d_name, target))
      return process;
  }
  return std::nullopt;
}

std::optional<process_id> owner_of_socket(uint64_t inode) {
  auto target = "socket:[" + std::to_string(inode) + "]";
  std::optional<process_id> oldest;
  size_t files = 0;
  dir_ptr processes{opendir("/proc")};
  while (auto entry = processes ? readdir(processes.get()) : nullptr) {
    pid_t pid = 0;
    if (!read_number(std::string_view{entry->d_name}, pid))
      continue;
    auto found = owner_if(pid, target, files);
    if (found && (!oldest || found->start_time < oldest->start_time))
      oldest = found;
  }
  return files > max_files ? std::nullopt : oldest;
}

std::optional<process_id> peer_by_credentials(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
    return std::nullopt;
  return process_of(peer.pid);
}

// -- what it maps ---------------------------------------------------------------------------

/// Device and inode of a file, as in the lines of /proc/PID/maps.
struct file_identity {
  unsigned major = 0;
  unsigned minor = 0;
  uint64_t inode = 0; ///< 0: unknown.
};

file_identity identity_of(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0)
    return {};
  return {gnu_dev_major(found.st_dev), gnu_dev_minor(found.st_dev), found.st_ino};
}

/// Whether `line` of /proc/PID/maps is a mapping of that file. A name that was unlinked since
/// stays as "NAME (deleted)".
bool is_mapping_of(std::string_view line, const file_identity& file, const std::string& path) {
  for (auto field = 1; field < 4; ++field) // Addresses, permissions, offset.
    take_word(line);
  auto device = take_word(line);
  file_identity found;
  auto colon = device.find(':');
  if (colon == std::string_view::npos || !read_number(device.substr(0, colon), found.major, 16)
      || !read_number(device.substr(colon + 1), found.minor, 16)
      || !read_number(take_word(line), found.inode))
    return false;
  if (file.inode != 0 && found.inode == file.inode && found.major == file.major
      && found.minor == file.minor)
    return true;
  auto start = line.find_first_not_of(' ');
  auto name = start == std::string_view::npos ? std::string_view{} : line.substr(start);
  return name == path || name == path + " (deleted)";
}

bool exists(pid_t pid) {
  return kill(pid, 0) == 0 || errno != ESRCH;
}

} // namespace

std::optional<process_id> process_of(pid_t pid) {
  auto facts = facts_of(pid);
  return facts ? std::optional{process_id{pid, facts->start_time}} : std::nullopt;
}

std::optional<process_id> peer_of_socket(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return std::nullopt;
  if (own.ss_family == AF_UNIX)
    return peer_by_credentials(fd);
  // What is remote for us is local for the other end.
  auto local = endpoint_of(fd, getpeername);
  auto remote = endpoint_of(fd, getsockname);
  if (!local || !remote)
    return std::nullopt;
  for (auto table : {"/proc/net/tcp", "/proc/net/tcp6"})
    if (auto inode = find_socket(table, *local, *remote); inode != 0)
      return owner_of_socket(inode);
  return std::nullopt;
}

mapping_state maps_segment(const process_id& process, const std::string& name) {
  auto facts = facts_of(process.pid);
  if (!facts)
    return exists(process.pid) ? mapping_state::not_visible : mapping_state::no;
  if (facts->start_time != process.start_time)
    return mapping_state::no;
  auto path = segment_names::path_of(name);
  auto file = identity_of(path);
  lines_of maps{proc_path(process.pid, "maps")};
  size_t count = 0;
  for (auto line = maps.next(); line.data() != nullptr; line = maps.next()) {
    if (is_mapping_of(line, file, path))
      return mapping_state::yes;
    if (++count == max_mappings)
      return mapping_state::not_visible;
  }
  if (maps.error() != 0 && maps.error() != ESRCH) // ESRCH: it has no memory any more.
    return process_of(process.pid) == process ? mapping_state::not_visible : mapping_state::no;
  // No mappings at all: it has ended and waits for its parent, unless only its first thread has.
  return count == 0 && facts->threads > 1 ? mapping_state::not_visible : mapping_state::no;
}

} // namespace kvasir
