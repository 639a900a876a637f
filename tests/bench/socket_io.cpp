#include "socket_io.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace kvasir::bench {

void give_up(const std::string& what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  std::_Exit(2);
}

void give_up_errno(const std::string& what) {
  give_up(what + ": " + std::system_category().message(errno));
}

tcp_socket tcp_socket::connect_to(const endpoint& peer, bool no_delay,
                                  std::chrono::seconds timeout) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(peer.port);
  if (inet_pton(AF_INET, peer.host.c_str(), &address.sin_addr) != 1)
    give_up("not a numeric IPv4 address: " + peer.host);
  tcp_socket result{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (result.fd_ < 0)
    give_up_errno("socket");
  timeval limit{.tv_sec = timeout.count(), .tv_usec = 0};
  setsockopt(result.fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(result.fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int on = no_delay ? 1 : 0;
  setsockopt(result.fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(result.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    give_up_errno("connect to " + peer.host + ":" + std::to_string(peer.port));
  return result;
}

tcp_socket::~tcp_socket() {
  if (fd_ >= 0)
    ::close(fd_);
}

void tcp_socket::send_all(std::span<iovec> parts) {
  while (!parts.empty()) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    auto sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR)
        continue;
      give_up_errno("send");
    }
    auto rest = static_cast<std::size_t>(sent);
    while (!parts.empty() && rest >= parts.front().iov_len) {
      rest -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (rest > 0) {
      parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + rest;
      parts.front().iov_len -= rest;
    }
  }
}

void tcp_socket::send_all(const void* data, std::size_t size) {
  auto whole = part(data, size);
  send_all({&whole, 1});
}

void tcp_socket::receive_exact(void* data, std::size_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    auto received = ::recv(fd_, to, size, MSG_WAITALL);
    if (received == 0)
      give_up("the server closed the connection");
    if (received < 0) {
      if (errno == EINTR)
        continue;
      give_up_errno("receive");
    }
    to += received;
    size -= static_cast<std::size_t>(received);
  }
}

std::size_t tcp_socket::receive_some(void* data, std::size_t size) {
  for (;;) {
    auto received = ::recv(fd_, data, size, 0);
    if (received > 0)
      return static_cast<std::size_t>(received);
    if (received == 0)
      give_up("the server closed the connection");
    if (errno != EINTR)
      give_up_errno("receive");
  }
}

} // namespace kvasir::bench
