#include "actors/http_stream.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

namespace kvasir {

namespace {

/// @param function `getpeername` or `getsockname`
template <class Function>
void read_address(Function function, int fd, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (function(fd, generic, &size) != 0
      || getnameinfo(generic, size, host.data(), host.size(), service.data(), service.size(),
                     NI_NUMERICHOST | NI_NUMERICSERV)
           != 0)
    return;
  ip = host.data();
  std::string_view digits{service.data()};
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
}

} // namespace

http_stream::http_stream(int fd) : fd_(fd) {
  begin_request();
}

void http_stream::begin_request() {
  read_until_ = clock::now() + request_limit;
  write_until_.reset();
}

bool http_stream::is_readable() const {
  return has_more() || wait(POLLIN, read_until_);
}

bool http_stream::is_writable() const {
  return wait(POLLOUT, clock::now() + reply_limit);
}

ssize_t http_stream::read(char* to, size_t size) {
  if (!has_more()) {
    begin_ = end_ = 0;
    if (!wait(POLLIN, read_until_))
      return -1;
    auto got = recv(fd_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0)
      return got;
    end_ = static_cast<size_t>(got);
  }
  auto count = std::min(size, end_ - begin_);
  std::copy_n(buffer_.data() + begin_, count, to);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t http_stream::write(const char* from, size_t size) {
  if (!write_until_)
    write_until_ = clock::now() + reply_limit;
  if (!wait(POLLOUT, *write_until_))
    return -1;
  return send(fd_, from, size, MSG_NOSIGNAL);
}

void http_stream::get_remote_ip_and_port(std::string& ip, int& port) const {
  read_address(&getpeername, fd_, ip, port);
}

void http_stream::get_local_ip_and_port(std::string& ip, int& port) const {
  read_address(&getsockname, fd_, ip, port);
}

bool http_stream::wait(short events, clock::time_point until) const {
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
    if (left.count() <= 0)
      return false;
    pollfd polled{fd_, events, 0};
    auto ready = poll(&polled, 1, static_cast<int>(left.count()));
    if (ready > 0)
      return true;
    if (ready < 0 && errno != EINTR)
      return false;
  }
}

} // namespace kvasir
