#include "actors/embedding/joined_pool.hpp"

#include "messages/errc.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace kvasir {

caf::expected<joined_pool> joined_pool::map(int fd, uint64_t size_bytes) {
  struct stat found {};
  if (size_bytes == 0 || fstat(fd, &found) != 0
      || static_cast<uint64_t>(found.st_size) < size_bytes)
    return caf::make_error(errc::io_error, std::string{"the node's pool is not of the size "}
                                             + std::to_string(size_bytes));
  auto mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED)
    return caf::make_error(errc::io_error, "cannot map the node's pool: "
                                             + std::generic_category().message(errno));
  madvise(mapped, size_bytes, MADV_DONTFORK);
  joined_pool result;
  result.data_ = static_cast<std::byte*>(mapped);
  result.size_bytes_ = size_bytes;
  return result;
}

joined_pool::joined_pool(joined_pool&& other) noexcept
  : data_(std::exchange(other.data_, nullptr)),
    size_bytes_(std::exchange(other.size_bytes_, 0)) {}

joined_pool& joined_pool::operator=(joined_pool&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

joined_pool::~joined_pool() {
  if (data_ != nullptr)
    munmap(data_, size_bytes_);
}

} // namespace kvasir
