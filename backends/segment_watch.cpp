#include "backends/segment_watch.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace kvasir {

std::unique_ptr<segment_watch> segment_watch::open(const std::string& segment) {
  auto fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0)
    return nullptr;
  std::unique_ptr<segment_watch> result{new segment_watch{fd}};
  auto path = "/dev/shm/" + segment;
  if (inotify_add_watch(fd, path.c_str(), IN_OPEN) < 0)
    return nullptr;
  return result;
}

segment_watch::~segment_watch() {
  close(fd_);
}

void segment_watch::update() {
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (;;) {
    auto got = read(fd_, buffer.data(), buffer.size());
    if (got <= 0)
      return;
    for (ssize_t at = 0; at < got;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      // Events were lost: whoever waits for one is not to wait in vain.
      if ((event.mask & (IN_OPEN | IN_Q_OVERFLOW)) != 0)
        ++opens_;
      at += static_cast<ssize_t>(sizeof(event) + event.len);
    }
  }
}

} // namespace kvasir
