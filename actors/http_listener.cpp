#include "actors/http_listener.hpp"

#include "actors/log.hpp"
#include "messages/lm_frame.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace kvasir {

namespace {

constexpr int worker_count = 2;
constexpr int protocol_bytes = 4; // What `detect_protocol` needs.
constexpr std::chrono::milliseconds accept_pause{100};

void wake(int event_fd) {
  eventfd_write(event_fd, 1);
}

/// How many bytes must be there before `poll` reports the socket (or its end).
void set_low_water_mark(int fd, int bytes) {
  setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

} // namespace

http_listener::http_listener(listening_sockets listening, serve_handler serve,
                             std::string lm_hint)
  : listening_(std::move(listening)),
    serve_(std::move(serve)),
    lm_hint_(std::move(lm_hint)),
    wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  threads_.emplace_back([this] { listen(); });
  for (auto i = 0; i < worker_count; ++i)
    threads_.emplace_back([this] { work(); });
}

http_listener::~http_listener() {
  {
    std::lock_guard guard{mutex_};
    stopping_ = true;
  }
  has_work_.notify_all();
  wake(wake_.fd());
  for (auto& thread : threads_)
    thread.join();
}

void http_listener::listen() {
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign(1, {wake_.fd(), POLLIN, 0});
    auto accepting = clock::now() >= accept_again_;
    for (const auto& socket : listening_.sockets)
      polled.push_back({socket.fd(), static_cast<short>(accepting ? POLLIN : 0), 0});
    auto first = polled.size();
    for (const auto& connection : waiting_)
      polled.push_back({connection.socket.fd(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), wait_ms()) < 0 && errno != EINTR)
      return;
    auto now = clock::now();
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (polled[first + i].revents != 0)
        on_readable(waiting_[i]);
      else if (waiting_[i].deadline <= now)
        waiting_[i].socket = socket_handle{};
    }
    std::erase_if(waiting_, [](const waiting_connection& c) { return !c.socket; });
    if (polled[0].revents != 0) {
      take_returned();
      std::lock_guard guard{mutex_};
      if (stopping_)
        return;
    }
    for (size_t i = 0; i < listening_.sockets.size(); ++i)
      if (polled[i + 1].revents != 0)
        accept_from(listening_.sockets[i].fd());
  }
}

int http_listener::wait_ms() const {
  auto now = clock::now();
  auto next = now + std::chrono::seconds{60};
  if (accept_again_ > now)
    next = accept_again_;
  for (const auto& connection : waiting_)
    next = std::min(next, connection.deadline);
  auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  return static_cast<int>(std::max(wait, std::chrono::milliseconds{0}).count());
}

void http_listener::accept_from(int listener) {
  for (size_t i = 0; i < max_connections; ++i) {
    socket_handle accepted{accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!accepted) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log::write_limited(log::level::error, "cannot accept an HTTP connection",
                           {{"cause", std::generic_category().message(errno)}});
        accept_again_ = clock::now() + accept_pause;
        return;
      }
      if (errno == EAGAIN)
        return;
      continue; // The newcomer is gone already, or a signal came: take the next.
    }
    set_connection_options(accepted.fd());
    set_low_water_mark(accepted.fd(), protocol_bytes);
    size_t queued = 0;
    {
      std::lock_guard guard{mutex_};
      queued = queued_.size();
    }
    if (waiting_.size() + queued >= max_connections) {
      if (waiting_.empty())
        continue; // Closes the newcomer.
      waiting_.erase(waiting_.begin());
    }
    waiting_.push_back({std::move(accepted), clock::now() + silence_limit, true});
  }
}

void http_listener::take_returned() {
  eventfd_t count = 0;
  eventfd_read(wake_.fd(), &count);
  std::lock_guard guard{mutex_};
  for (auto& socket : returned_)
    waiting_.push_back({std::move(socket), clock::now() + idle_limit, false});
  returned_.clear();
}

void http_listener::on_readable(waiting_connection& connection) {
  auto socket = std::move(connection.socket);
  if (connection.fresh) {
    if (!speaks_http(socket.fd()))
      return;
    set_low_water_mark(socket.fd(), 1);
  }
  {
    std::lock_guard guard{mutex_};
    queued_.push_back(std::move(socket));
  }
  has_work_.notify_one();
}

bool http_listener::speaks_http(int fd) {
  std::array<std::byte, 16> start{};
  auto got = recv(fd, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < protocol_bytes)
    return false; // It hung up.
  auto seen = lm::detect_protocol(std::span{start}.first(static_cast<size_t>(got)));
  switch (seen) {
    case lm::protocol::http:
    case lm::protocol::unknown: // HTTP has more methods than we know; the parser will tell.
      return true;
    case lm::protocol::lm:
    case lm::protocol::tls:
    case lm::protocol::zmtp:
    case lm::protocol::resp:
      break;
  }
  wrong_protocol_.fetch_add(1, std::memory_order_relaxed);
  log::write_limited(log::level::warn, "not an HTTP client on the HTTP port",
                     {{"protocol", std::string{lm::to_string(seen)}},
                      {"port", std::to_string(listening_.port)},
                      {"hint", lm_hint_}});
  return false;
}

void http_listener::work() {
  for (;;) {
    socket_handle socket;
    {
      std::unique_lock guard{mutex_};
      has_work_.wait(guard, [this] { return stopping_ || !queued_.empty(); });
      if (stopping_)
        return;
      socket = std::move(queued_.front());
      queued_.pop_front();
    }
    if (!serve_(socket.fd())) {
      shutdown(socket.fd(), SHUT_RDWR);
      continue;
    }
    {
      std::lock_guard guard{mutex_};
      returned_.push_back(std::move(socket));
    }
    wake(wake_.fd());
  }
}

} // namespace kvasir
