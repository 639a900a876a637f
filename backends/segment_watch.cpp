#include "backends/segment_watch.hpp"

#include "backends/segment_names.hpp"
#include "messages/errc.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>

namespace kvasir {

caf::expected<std::unique_ptr<segment_watch>> segment_watch::open(const std::string& name) {
  auto failure = [](const std::string& what) {
    return caf::make_error(errc::io_error,
                           what + ": " + std::generic_category().message(errno));
  };
  auto fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0)
    return failure("inotify");
  std::unique_ptr<segment_watch> result{new segment_watch(fd)};
  auto path = segment_names::path_of(name);
  if (inotify_add_watch(fd, path.c_str(), IN_OPEN | IN_DONT_FOLLOW) < 0)
    return failure("watching " + path);
  return result;
}

segment_watch::~segment_watch() {
  close(fd_);
}

void segment_watch::update() {
  std::array<char, 4096> events;
  for (;;) {
    auto got = read(fd_, events.data(), events.size());
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return;
    auto end = static_cast<size_t>(got);
    for (size_t at = 0; at + sizeof(inotify_event) <= end;) {
      inotify_event event;
      std::memcpy(&event, events.data() + at, sizeof(event));
      if ((event.mask & (IN_OPEN | IN_Q_OVERFLOW)) != 0)
        ++opens_;
      at += sizeof(event) + event.len;
    }
  }
}

} // namespace kvasir
