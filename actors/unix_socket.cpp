#include "actors/unix_socket.hpp"

#include "messages/errc.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace kvasir {

namespace {

constexpr size_t max_fds = 4;
constexpr int backlog = 64;

using fd_space = std::array<char, CMSG_SPACE(max_fds * sizeof(int))>;

caf::error failure(errc code, const std::string& path, const std::string& cause) {
  return caf::make_error(code, "socket '" + path + "': " + cause);
}

std::string errno_text() {
  return std::generic_category().message(errno);
}

bool fill_address(const std::string& path, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

caf::error length_failure(errc code, const std::string& path) {
  return failure(code, path,
                 "a path of " + std::to_string(path.size()) + " bytes, not 1 to "
                   + std::to_string(sizeof(sockaddr_un::sun_path) - 1));
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

/// A socket whose owner died refuses connections.
bool is_abandoned(const std::string& path, const sockaddr_un& address) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode))
    return false;
  socket_handle probe{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  return probe && connect(probe.fd(), generic(address), sizeof(address)) != 0
         && errno == ECONNREFUSED;
}

uint64_t inode_of(const std::string& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

} // namespace

caf::expected<unix_listener> unix_listener::open(const std::string& path) {
  sockaddr_un address{};
  if (!fill_address(path, address))
    return length_failure(errc::io_error, path);
  unix_listener result;
  result.socket_
    = socket_handle{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!result.socket_)
    return failure(errc::io_error, path, errno_text());
  // The path gets these permissions: it is never open to others, not even for a moment.
  if (fchmod(result.socket_.fd(), S_IRUSR | S_IWUSR) != 0)
    return failure(errc::io_error, path, errno_text());
  if (is_abandoned(path, address))
    unlink(path.c_str());
  auto fd = result.socket_.fd();
  if (bind(fd, generic(address), sizeof(address)) != 0 || listen(fd, backlog) != 0)
    return failure(errc::io_error, path, errno_text());
  result.path_ = path;
  result.inode_ = inode_of(path);
  return result;
}

void unix_listener::withdraw() {
  if (!path_.empty() && inode_of(path_) == inode_)
    unlink(path_.c_str());
  path_.clear();
}

caf::expected<socket_handle> connect_to_path(const std::string& path,
                                             std::chrono::milliseconds timeout) {
  sockaddr_un address{};
  if (!fill_address(path, address))
    return length_failure(errc::peer_unreachable, path);
  socket_handle result{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!result)
    return failure(errc::peer_unreachable, path, errno_text());
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timeval limit{};
  limit.tv_sec = seconds.count();
  limit.tv_usec = std::chrono::microseconds{timeout - seconds}.count();
  setsockopt(result.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(result.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(result.fd(), generic(address), sizeof(address)) != 0)
    return failure(errc::peer_unreachable, path, errno_text());
  return result;
}

bool peer_is_same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

ssize_t send_with_fds(int socket, std::span<const char> bytes, std::span<const int> fds) {
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) fd_space space{};
  if (!fds.empty()) {
    message.msg_control = space.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t receive_with_fds(int socket, std::span<char> into, std::vector<socket_handle>& fds) {
  iovec piece{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) fd_space space{};
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  auto got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0)
    return got;
  for (auto header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      continue;
    const auto count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  return got;
}

} // namespace kvasir
