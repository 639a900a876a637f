#include "backends/sealed_memory.hpp"

#include "messages/errc.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace kvasir {

namespace {

caf::error failure(const std::string& what) {
  return caf::make_error(errc::io_error, what + ": " + std::generic_category().message(errno));
}

/// A descriptor of the same file that cannot write. @returns -1 and errno.
int reopen_read_only(int fd) {
  return ::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
}

} // namespace

caf::expected<sealed_memory> sealed_memory::create(const char* name, uint64_t size_bytes,
                                                   access others) {
  sealed_memory result;
  result.fd_ = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (result.fd_ < 0 || ::ftruncate(result.fd_, static_cast<off_t>(size_bytes)) != 0)
    return failure(name);
  auto* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        result.fd_, 0);
  if (memory == MAP_FAILED)
    return failure(name);
  result.data_ = static_cast<std::byte*>(memory);
  result.size_bytes_ = size_bytes;
  ::madvise(memory, size_bytes, MADV_DONTDUMP); // Advice.
  // The second seal leaves the mapping above as it is: it can write, no later one can.
  auto seals = F_SEAL_SHRINK | F_SEAL_GROW
               | (others == access::ours ? F_SEAL_FUTURE_WRITE | F_SEAL_SEAL : F_SEAL_SEAL);
  if (::fcntl(result.fd_, F_ADD_SEALS, seals) != 0)
    return failure(name);
  if (others == access::ours) {
    auto read_only = reopen_read_only(result.fd_);
    if (read_only < 0)
      return failure(name);
    ::close(std::exchange(result.fd_, read_only));
  }
  return result;
}

caf::expected<sealed_memory> sealed_memory::map(int fd, bool writable, uint64_t least_bytes) {
  struct stat found {};
  if (::fstat(fd, &found) != 0)
    return failure("shared memory");
  auto seals = ::fcntl(fd, F_GET_SEALS);
  auto size_bytes = static_cast<uint64_t>(found.st_size);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || size_bytes < least_bytes)
    return caf::make_error(errc::invalid_argument, "no sealed memory, or too small");
  auto* memory = ::mmap(nullptr, size_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                        MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return failure("shared memory");
  sealed_memory result;
  result.data_ = static_cast<std::byte*>(memory);
  result.size_bytes_ = size_bytes;
  return result;
}

sealed_memory::sealed_memory(sealed_memory&& other) noexcept
  : data_(std::exchange(other.data_, nullptr)),
    size_bytes_(other.size_bytes_),
    fd_(std::exchange(other.fd_, -1)) {}

sealed_memory& sealed_memory::operator=(sealed_memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

sealed_memory::~sealed_memory() {
  if (data_ != nullptr)
    ::munmap(data_, size_bytes_);
  if (fd_ >= 0)
    ::close(fd_);
}

} // namespace kvasir
