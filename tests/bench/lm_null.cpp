// A server with the framing of lm:// and no store: it reads every PUT, says yes to every EXIST
// and answers every GET with as many bytes as the connection's last PUT had. What a real server
// reaches of its rate is what remains after storing, looking up and verifying.

#include "lm_frame.hpp"
#include "socket_io.hpp"

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>
#include <vector>

namespace kvasir::bench {

namespace {

struct null_options {
  std::uint16_t port = 0;
  std::size_t max_value_size = std::size_t{64} << 20;
  bool quick_ack = false;
};

bool receive_exact(int fd, char* to, std::size_t size) {
  while (size > 0) {
    auto received = ::recv(fd, to, size, MSG_WAITALL);
    if (received <= 0)
      return false;
    to += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

bool send_exact(int fd, const char* header, std::size_t header_size, const char* value,
                std::size_t value_size) {
  auto total = header_size + value_size;
  for (std::size_t sent = 0; sent < total;) {
    std::array<iovec, 2> parts{};
    auto of_header = std::min(sent, header_size);
    auto of_value = sent - of_header;
    parts[0] = part(header + of_header, header_size - of_header);
    parts[1] = part(value + of_value, value_size - of_value);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    auto result = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (result < 0)
      return false;
    sent += static_cast<std::size_t>(result);
  }
  return true;
}

/// Serves one connection until it ends or breaks the framing.
void serve(int fd, const null_options& options, const std::vector<char>& answer) {
  constexpr int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // The kernel leaves quick-ack mode by itself, so it is asked for before every wait. Without
  // it a client that sends header and value apart waits 40 ms for the delayed acknowledgement.
  auto before_wait = [&] {
    if (options.quick_ack)
      setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
  };
  std::vector<char> received;
  std::int32_t last_length = 0;
  lm::request_bytes request;
  for (;;) {
    before_wait();
    if (!receive_exact(fd, request.data(), request.size()))
      return;
    switch (static_cast<lm::command>(lm::field(request, 0))) {
      case lm::command::put: {
        last_length = lm::field(request, 1);
        if (last_length < 0 || static_cast<std::size_t>(last_length) > answer.size())
          return;
        auto size = static_cast<std::size_t>(last_length);
        received.resize(std::max(size, received.size()));
        before_wait();
        if (!receive_exact(fd, received.data(), size))
          return;
        break;
      }
      case lm::command::get: {
        auto reply = lm::make_reply(lm::code_ok, last_length);
        if (!send_exact(fd, reply.data(), reply.size(), answer.data(),
                        static_cast<std::size_t>(last_length)))
          return;
        break;
      }
      case lm::command::exist: {
        auto reply = lm::make_reply(lm::code_ok);
        if (!send_exact(fd, reply.data(), reply.size(), nullptr, 0))
          return;
        break;
      }
      default:
        return;
    }
  }
}

int listen_on(std::uint16_t& port) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  constexpr int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, size) != 0 || ::listen(fd, 1024) != 0
      || ::getsockname(fd, generic, &size) != 0)
    give_up_errno("listen on port " + std::to_string(port));
  port = ntohs(address.sin_port);
  return fd;
}

[[noreturn]] void run(null_options options) {
  auto listener = listen_on(options.port);
  const std::vector<char> answer(options.max_value_size, 'z');
  std::printf("lm_null ready lm=127.0.0.1:%u\n", unsigned{options.port});
  std::fflush(stdout);
  for (;;) {
    int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0)
      continue;
    std::thread([fd, &options, &answer] {
      serve(fd, options, answer);
      ::close(fd);
    }).detach();
  }
}

} // namespace

} // namespace kvasir::bench

int main(int argc, char** argv) try {
  kvasir::bench::null_options options;
  CLI::App app{"Answers lm:// without storing anything: the ceiling of the protocol here."};
  app.add_option("--port", options.port, "Port on 127.0.0.1; 0 = any free one");
  app
    .add_option("--max-value-size", options.max_value_size, "A longer PUT ends its connection")
    ->transform(CLI::AsSizeValue(false));
  app.add_flag("--quickack", options.quick_ack, "Acknowledges every segment at once");
  CLI11_PARSE(app, argc, argv);
  kvasir::bench::run(options);
} catch (const std::exception& error) {
  kvasir::bench::give_up(error.what());
}
