#include "backends/segment_names.hpp"

#include "messages/errc.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>

namespace kvasir::segment_names {

namespace {

/// More stale segments than this wait for the next start: each needs an open file meanwhile.
constexpr size_t max_stale_count = 256;

/// A segment whose owner is dead, locked by us until its names are gone.
class stale_segment {
public:
  stale_segment(int fd, const struct stat& st)
    : fd_(fd),
      device_(st.st_dev),
      inode_(st.st_ino) {}
  stale_segment(stale_segment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      device_(other.device_),
      inode_(other.inode_) {}
  stale_segment& operator=(stale_segment&&) = delete;
  ~stale_segment() {
    if (fd_ >= 0)
      ::close(fd_);
  }

  bool is(const struct stat& st) const { return st.st_dev == device_ && st.st_ino == inode_; }

private:
  int fd_;
  dev_t device_;
  ino_t inode_;
};

std::string prefix_of(const char* kind) {
  return std::string{kind} + std::to_string(::geteuid()) + '_';
}

std::string name_of(const char* kind, uint64_t boot_id) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(boot_id));
  return prefix_of(kind) + digits;
}

constexpr const char* public_kind = "lmcache_l1_pool_kvasir_";
constexpr const char* anchor_kind = "kvasir_anchor_";

struct dir_closer {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

/// Names in the folder; all at once, because unlinking while reading may skip entries.
std::vector<std::string> list(DIR* dir) {
  std::vector<std::string> names;
  ::rewinddir(dir);
  while (const auto* entry = ::readdir(dir))
    names.emplace_back(entry->d_name);
  return names;
}

/// Opens and locks `name` if it is a segment of a dead owner.
void collect(int dir_fd, const std::string& name, std::vector<stale_segment>& stale) {
  // O_NONBLOCK: a FIFO with this name must not hold up the start.
  auto fd = ::openat(dir_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0)
    return;
  struct stat st {};
  if (::fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == ::geteuid()
      && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
    stale.emplace_back(fd, st);
  else
    ::close(fd);
}

const char* kind_text(mode_t mode) {
  if (S_ISREG(mode))
    return "a file";
  if (S_ISDIR(mode))
    return "a directory";
  if (S_ISLNK(mode))
    return "a symbolic link";
  return "a special file";
}

} // namespace

std::string path_of(const std::string& name) {
  return std::string{folder} + '/' + name;
}

std::string default_name(uint64_t boot_id) {
  return name_of(public_kind, boot_id);
}

std::string anchor_name(uint64_t boot_id) {
  return name_of(anchor_kind, boot_id);
}

uint64_t new_boot_id() {
  uint64_t id = 0;
  if (::getrandom(&id, sizeof(id), 0) == static_cast<ssize_t>(sizeof(id)))
    return id;
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

bool usable(const std::string& name) {
  constexpr size_t max_length = 254; // NAME_MAX, less the slash that shm_open wants in front
  return !name.empty() && name.size() <= max_length && name != "." && name != ".."
         && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

bool taken(const std::string& name) {
  struct stat st {};
  return ::lstat(path_of(name).c_str(), &st) == 0;
}

caf::error taken_error(const std::string& name) {
  struct stat st {};
  auto path = path_of(name);
  if (::lstat(path.c_str(), &st) != 0)
    return caf::make_error(errc::io_error, path + " was taken by another process");
  return caf::make_error(errc::io_error, path + " exists: " + kind_text(st.st_mode)
                                           + " owned by uid " + std::to_string(st.st_uid)
                                           + " that is no stale segment of ours");
}

std::vector<std::string> sweep() {
  std::vector<std::string> removed;
  std::unique_ptr<DIR, dir_closer> dir{::opendir(folder)};
  if (!dir)
    return removed;
  auto dir_fd = ::dirfd(dir.get());
  auto names = list(dir.get());
  auto public_prefix = prefix_of(public_kind);
  auto anchor_prefix = prefix_of(anchor_kind);
  std::vector<stale_segment> stale;
  for (const auto& name : names) {
    // A second name of one segment is not collected again: the lock is ours by then.
    if (stale.size() < max_stale_count
        && (name.starts_with(public_prefix) || name.starts_with(anchor_prefix)))
      collect(dir_fd, name, stale);
  }
  if (stale.empty())
    return removed;
  for (const auto& name : names) {
    struct stat st {};
    if (::fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    auto same = [&st](const stale_segment& s) {
      return s.is(st);
    };
    if (std::any_of(stale.begin(), stale.end(), same)
        && ::unlinkat(dir_fd, name.c_str(), 0) == 0)
      removed.push_back(name);
  }
  return removed;
}

} // namespace kvasir::segment_names
