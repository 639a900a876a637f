#include "backends/shm_pool.hpp"

#include "backends/memory_limits.hpp"
#include "backends/segment_names.hpp"
#include "messages/errc.hpp"

#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

namespace kvasir {

namespace bip = boost::interprocess;

namespace {

constexpr uint64_t page_bytes = 4096;
constexpr int max_attempts = 8; // at names and at interrupted calls: nothing loops for ever

std::string bytes_text(uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

/// errno of a failed system call as an error with one line of text.
caf::error errno_error(errc code, const std::string& what, int number) {
  return caf::make_error(code, what + ": " + std::generic_category().message(number));
}

errc growth_code(int number) {
  return number == ENOSPC || number == ENOMEM || number == EDQUOT || number == EINTR
           ? errc::out_of_memory
           : errc::io_error;
}

/// Boost.Interprocess reports by exception; this is the only place where they are caught.
template <class Function>
caf::error without_exceptions(const std::string& what, Function f) {
  try {
    f();
    return {};
  } catch (const bip::interprocess_exception& e) {
    return errno_error(errc::io_error, what, e.get_native_error());
  } catch (const std::exception& e) {
    return caf::make_error(errc::io_error, what + ": " + e.what());
  }
}

caf::error refuse(uint64_t capacity_bytes, uint64_t free_bytes, const std::string& where) {
  return caf::make_error(errc::io_error, "a pool of " + bytes_text(capacity_bytes)
                                           + " does not fit: " + where + " has "
                                           + bytes_text(free_bytes) + " free");
}

caf::error check_machine(uint64_t capacity_bytes) {
  auto room = available_memory();
  if (room.available_bytes < capacity_bytes)
    return refuse(capacity_bytes, room.available_bytes, room.limited_by);
  return {};
}

caf::error check_shm_folder(uint64_t capacity_bytes) {
  struct statvfs vfs {};
  if (::statvfs(segment_names::folder, &vfs) != 0)
    return errno_error(errc::io_error, segment_names::folder, errno);
  // A tmpfs without a size limit reports 0 blocks in all.
  auto free_bytes = uint64_t{vfs.f_bavail} * vfs.f_frsize;
  if (vfs.f_blocks != 0 && free_bytes < capacity_bytes)
    return refuse(capacity_bytes, free_bytes, segment_names::folder);
  return {};
}

/// Faults pages in for writing without changing what a used page holds (there is none).
/// @returns 0 or an errno.
int populate(std::byte* begin, uint64_t size_bytes) {
  for (auto attempt = 0; attempt < max_attempts; ++attempt) {
    if (::madvise(begin, size_bytes, MADV_POPULATE_WRITE) == 0)
      return 0;
    if (errno == EINVAL || errno == ENOSYS) { // before Linux 5.14
      for (uint64_t i = 0; i < size_bytes; i += page_bytes)
        *const_cast<volatile std::byte*>(begin + i) = std::byte{0};
      return 0;
    }
    if (errno != EINTR && errno != EAGAIN)
      return errno;
  }
  return EINTR;
}

/// Takes blocks of the file, so that a full /dev/shm is an error here and no SIGBUS later.
/// @returns 0 or an errno.
int allocate_blocks(int fd, uint64_t offset_bytes, uint64_t size_bytes) {
  auto offset = static_cast<off_t>(offset_bytes);
  auto size = static_cast<off_t>(size_bytes);
  for (auto attempt = 0; attempt < max_attempts; ++attempt) {
    if (::fallocate(fd, 0, offset, size) == 0)
      return 0;
    if (errno == EOPNOTSUPP || errno == ENOSYS)
      return ::posix_fallocate(fd, offset, size);
    if (errno != EINTR)
      return errno;
  }
  return EINTR;
}

} // namespace

struct shm_pool::segment {
  bip::shared_memory_object object; // empty if private
  bip::mapped_region region;
  void* anonymous = nullptr; // null if shared
  uint64_t size_bytes = 0;

  segment() = default;
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;

  ~segment() {
    if (anonymous != nullptr)
      ::munmap(anonymous, size_bytes);
  }
};

shm_pool::shm_pool() = default;

caf::expected<std::unique_ptr<shm_pool>> shm_pool::open(options opts) {
  auto requested_bytes = opts.capacity_bytes;
  opts.capacity_bytes = opts.capacity_bytes / page_bytes * page_bytes;
  if (opts.capacity_bytes == 0)
    return caf::make_error(errc::invalid_argument, "a pool of " + bytes_text(requested_bytes)
                                                     + " is smaller than one page of "
                                                     + bytes_text(page_bytes));
  if (opts.name.starts_with('/')) // POSIX spells shared memory so
    opts.name.erase(0, 1);
  if (!opts.name.empty() && !segment_names::usable(opts.name))
    return caf::make_error(errc::invalid_argument,
                           "\"" + opts.name + "\" cannot be a file name in /dev/shm");
  std::unique_ptr<shm_pool> pool{new shm_pool};
  pool->capacity_bytes_ = opts.capacity_bytes;
  auto step_bytes = std::clamp(opts.step_bytes, page_bytes, opts.capacity_bytes);
  pool->step_bytes_ = (step_bytes + page_bytes - 1) / page_bytes * page_bytes;
  pool->owner_pid_ = ::getpid();
  pool->swept_ = segment_names::sweep(); // first: what it removes may be the room we need
  if (opts.mode != sharing::off) {
    auto err = pool->open_shared(opts);
    if (!err)
      return pool;
    pool->segment_.reset();
    // A client told that name would attach to whatever has it: no quiet fallback.
    if (opts.mode == sharing::on || (!opts.name.empty() && segment_names::taken(opts.name)))
      return err;
    pool->fallback_reason_ = to_string(err.context());
  }
  if (auto err = pool->open_private())
    return err;
  return pool;
}

caf::error shm_pool::open_shared(const options& opts) {
  if (!opts.name.empty() && segment_names::taken(opts.name))
    return segment_names::taken_error(opts.name);
  if (auto err = check_shm_folder(capacity_bytes_))
    return err;
  if (auto err = check_machine(capacity_bytes_))
    return err;
  for (auto attempt = 0; attempt < max_attempts; ++attempt) {
    auto boot_id = segment_names::new_boot_id();
    auto anchor = segment_names::anchor_name(boot_id);
    auto name = opts.name.empty() ? segment_names::default_name(boot_id) : opts.name;
    auto anchor_path = segment_names::path_of(anchor);
    segment_ = std::make_unique<segment>();
    if (auto err = without_exceptions(anchor_path, [&] {
          segment_->object = bip::shared_memory_object(bip::create_only, anchor.c_str(),
                                                       bip::read_write, bip::permissions(0600));
        }))
      return err;
    auto fd = segment_->object.get_mapping_handle().handle;
    // Another start may take the new file for a dead owner's before we lock it: a new one then.
    struct stat st {};
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 || ::fstat(fd, &st) != 0 || st.st_nlink == 0)
      continue;
    auto err = without_exceptions(anchor_path, [&] {
      segment_->object.truncate(static_cast<bip::offset_t>(capacity_bytes_));
      segment_->region = bip::mapped_region(segment_->object, bip::read_write, 0,
                                            static_cast<size_t>(capacity_bytes_));
    });
    if (!err && ::link(anchor_path.c_str(), segment_names::path_of(name).c_str()) != 0) {
      err = errno == EEXIST ? segment_names::taken_error(name)
                            : errno_error(errc::io_error, segment_names::path_of(name), errno);
    }
    if (err) {
      ::unlink(anchor_path.c_str());
      return err;
    }
    fd_ = fd;
    data_ = static_cast<std::byte*>(segment_->region.get_address());
    name_ = std::move(name);
    anchor_ = std::move(anchor);
    ::madvise(data_, capacity_bytes_, MADV_DONTDUMP); // advice: no core of the pool's size
    return {};
  }
  return caf::make_error(errc::io_error, std::string{segment_names::folder}
                                           + ": another process removes each new segment");
}

caf::error shm_pool::open_private() {
  if (auto err = check_machine(capacity_bytes_))
    return err;
  auto* memory = ::mmap(nullptr, capacity_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return errno_error(errc::io_error, "cannot map " + bytes_text(capacity_bytes_), errno);
  segment_ = std::make_unique<segment>();
  segment_->anonymous = memory;
  segment_->size_bytes = capacity_bytes_;
  data_ = static_cast<std::byte*>(memory);
  ::madvise(memory, capacity_bytes_, MADV_DONTDUMP); // advice, as above
  ::madvise(memory, capacity_bytes_, MADV_HUGEPAGE); // advice: fewer faults and TLB misses
  return {};
}

shm_pool::~shm_pool() {
  withdraw();
  // The lock ends with segment_, after the names.
}

void shm_pool::withdraw() {
  // A forked child that destroys its copy of the pool must not take the name away.
  if (fd_ < 0 || ::getpid() != owner_pid_)
    return;
  for (const auto& name : {name_, anchor_}) {
    if (refers_to_us(name))
      ::unlink(segment_names::path_of(name).c_str());
  }
}

caf::expected<uint64_t> shm_pool::grow() {
  auto usable = usable_bytes_.load(std::memory_order_relaxed);
  auto step = std::min(step_bytes_, capacity_bytes_ - usable);
  if (step == 0)
    return usable;
  auto what = "growing the pool from " + bytes_text(usable) + " by " + bytes_text(step);
  // The kernel's answer to a full cgroup would be to kill us.
  if (auto room = available_memory(); room.available_bytes < step)
    return caf::make_error(errc::out_of_memory, what + ": " + room.limited_by + " has "
                                                  + bytes_text(room.available_bytes) + " free");
  if (fd_ >= 0) {
    if (auto number = allocate_blocks(fd_, usable, step))
      return errno_error(growth_code(number), what, number);
  }
  if (auto number = populate(data_ + usable, step))
    return errno_error(growth_code(number), what, number);
  usable += step;
  usable_bytes_.store(usable, std::memory_order_release);
  return usable;
}

bool shm_pool::refers_to_us(const std::string& name) const {
  struct stat ours {};
  struct stat found {};
  return ::fstat(fd_, &ours) == 0 && ::lstat(segment_names::path_of(name).c_str(), &found) == 0
         && ours.st_dev == found.st_dev && ours.st_ino == found.st_ino;
}

bool shm_pool::segment_present() const {
  return fd_ >= 0 && refers_to_us(name_);
}

bool shm_pool::republish() {
  if (segment_present())
    return true;
  if (fd_ < 0 || !refers_to_us(anchor_))
    return false;
  return ::link(segment_names::path_of(anchor_).c_str(), segment_names::path_of(name_).c_str())
         == 0;
}

int shm_pool::reopen() const {
  if (fd_ < 0) {
    errno = EBADF;
    return -1;
  }
  // By its number: the public name may be gone.
  return ::open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDWR | O_CLOEXEC);
}

bool shm_pool::open_elsewhere() const {
  if (fd_ < 0)
    return false;
  // Whoever opens the file while we have the lease causes this signal to us, which would end the
  // process if it were the default, SIGIO.
  if (::fcntl(fd_, F_SETSIG, SIGURG) != 0 || ::fcntl(fd_, F_SETLEASE, F_WRLCK) != 0)
    return true;
  ::fcntl(fd_, F_SETLEASE, F_UNLCK);
  return false;
}

} // namespace kvasir
