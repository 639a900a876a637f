#include "actors/acceptor.hpp"

#include "actors/log.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace kvasir {

namespace {

constexpr int max_accepted_at_once = 64;
constexpr std::chrono::milliseconds retry_after{100};

socket_handle open_spare() {
  return socket_handle{open("/dev/null", O_RDONLY | O_CLOEXEC)};
}

} // namespace

acceptor::acceptor(io_unit& unit, socket_handle listener, accept_handler on_accept,
                   refuse_handler on_refuse)
  : unit_(unit),
    listener_(std::move(listener)),
    spare_(open_spare()),
    on_accept_(std::move(on_accept)),
    on_refuse_(std::move(on_refuse)) {}

void acceptor::open() {
  unit_.watch(listener_.fd(), EPOLLIN, *this);
  unit_.schedule(*this);
}

bool acceptor::refuse_one() {
  spare_ = socket_handle{};
  socket_handle newcomer{accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC)};
  auto refused = static_cast<bool>(newcomer);
  newcomer = socket_handle{};
  spare_ = open_spare();
  if (refused)
    on_refuse_();
  return refused;
}

void acceptor::run() {
  for (auto i = 0; i < max_accepted_at_once; ++i) {
    socket_handle accepted{
      accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (accepted) {
      on_accept_(std::move(accepted));
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return;
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        log::write_limited(log::level::error, "cannot accept a connection",
                           {{"cause", std::generic_category().message(errno)}});
        // All of them at once: those behind it in the queue would wait for an answer.
        if (refuse_one())
          break;
        unit_.arm(retry_, retry_after);
        return;
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
        break; // The newcomer is gone already, or a signal came: take the next.
      default:
        log::write_limited(log::level::error, "cannot accept a connection",
                           {{"cause", std::generic_category().message(errno)}});
        unit_.arm(retry_, retry_after);
        return;
    }
  }
  unit_.schedule(*this);
}

} // namespace kvasir
