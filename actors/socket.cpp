#include "actors/socket.hpp"

#include "messages/errc.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace kvasir {

namespace {

using address_list = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

caf::error failure(errc code, const std::string& what, const std::string& cause) {
  return caf::make_error(code, what + ": " + cause);
}

std::string errno_text() {
  return std::generic_category().message(errno);
}

caf::expected<address_list> resolve(const std::string& host, uint16_t port, int flags,
                                    errc code) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  auto bare = host.size() > 2 && host.front() == '[' && host.back() == ']'
                ? host.substr(1, host.size() - 2)
                : host;
  addrinfo* found = nullptr;
  if (auto failed = getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &hints, &found))
    return failure(code, "cannot resolve host '" + host + "'", gai_strerror(failed));
  return address_list{found, &freeaddrinfo};
}

uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return 0;
  return ntohs(address.ss_family == AF_INET6
                 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                 : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void set_port(addrinfo& address, uint16_t port) {
  if (address.ai_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(address.ai_addr)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(address.ai_addr)->sin_port = htons(port);
}

} // namespace

socket_handle::~socket_handle() {
  if (fd_ >= 0)
    close(fd_);
}

caf::expected<listening_sockets> listen_on(const std::string& host, uint16_t port) {
  auto what = "cannot listen on " + host + " port " + std::to_string(port);
  auto addresses = resolve(host, port, AI_PASSIVE, errc::io_error);
  if (!addresses)
    return std::move(addresses.error());
  listening_sockets result;
  result.port = port;
  for (auto address = addresses->get(); address != nullptr; address = address->ai_next) {
    socket_handle socket{
      ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket) {
      if (errno == EAFNOSUPPORT)
        continue; // A host without IPv6 still serves IPv4.
      return failure(errc::io_error, what, errno_text());
    }
    set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    // One wildcard socket serves both families; two explicit addresses are two sockets.
    if (address->ai_family == AF_INET6)
      set_option(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, host == "::" ? 0 : 1);
    set_port(*address, result.port);
    if (bind(socket.fd(), address->ai_addr, address->ai_addrlen) != 0
        || listen(socket.fd(), SOMAXCONN) != 0) {
      if (errno == EADDRNOTAVAIL && address->ai_next != nullptr)
        continue;
      return failure(errc::io_error, what, errno_text());
    }
    result.port = bound_port(socket.fd());
    result.sockets.push_back(std::move(socket));
  }
  if (result.sockets.empty())
    return failure(errc::io_error, what, "no usable address");
  return result;
}

caf::expected<socket_handle> connect_to(const std::string& host, uint16_t port,
                                        int timeout_ms) {
  auto what = "cannot connect to " + host + ":" + std::to_string(port);
  auto addresses = resolve(host, port, 0, errc::peer_unreachable);
  if (!addresses)
    return std::move(addresses.error());
  std::string cause = "no usable address";
  for (auto address = addresses->get(); address != nullptr; address = address->ai_next) {
    socket_handle socket{
      ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket)
      continue;
    auto failed = connect(socket.fd(), address->ai_addr, address->ai_addrlen);
    if (failed != 0 && errno == EINPROGRESS) {
      pollfd waiting{socket.fd(), POLLOUT, 0};
      int error = ETIMEDOUT;
      socklen_t size = sizeof(error);
      if (poll(&waiting, 1, timeout_ms) > 0)
        getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      errno = error;
      failed = error;
    }
    if (failed != 0) {
      cause = errno_text();
      continue;
    }
    int non_blocking = 0; // Blocking from here on, with time-outs.
    ioctl(socket.fd(), FIONBIO, &non_blocking);
    timeval limit{timeout_ms / 1000, (timeout_ms % 1000) * 1000};
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    set_option(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
    return socket;
  }
  return failure(errc::peer_unreachable, what, cause);
}

void set_connection_options(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void acknowledge_now(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

} // namespace kvasir
