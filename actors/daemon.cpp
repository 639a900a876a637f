#include "actors/daemon.hpp"

#include "actors/log.hpp"
#include "actors/node.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace kvasir {

namespace {

constexpr std::chrono::seconds grace{3};
constexpr std::chrono::seconds patience{5};

/// Signals arrive at the descriptor from now on; a write to a closed pipe is an error only.
socket_handle take_signals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return socket_handle{signalfd(-1, &ending, SFD_CLOEXEC)};
}

/// One descriptor per connection: the usual soft limit of 1024 is too low.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// The text that the failing part gave; what CAF makes of the error if it gave none.
std::string text_of(const caf::error& failure) {
  if (failure.context().match_elements<std::string>())
    return failure.context().get_as<std::string>(0);
  return to_string(failure);
}

/// Ends the process if it does not end by itself. Takes no lock and writes nothing: whatever
/// hangs may hold either.
void watch_over_the_end(int signal_fd, int exit_code) {
  std::thread{[signal_fd, exit_code] {
    pollfd polled{signal_fd, POLLIN, 0};
    auto wait = std::chrono::milliseconds{patience};
    poll(&polled, 1, static_cast<int>(wait.count()));
    _exit(exit_code);
  }}.detach();
}

void say_ready(const node& served) {
  std::printf("kvasird ready %s\n", served.endpoints().c_str());
  std::fflush(stdout);
}

int fail_to_start(const std::string& cause) {
  std::fprintf(stderr, "kvasird: %s\n", cause.c_str());
  return exit_start_failed;
}

/// Waits for a signal or the death of a part. @returns the exit code.
int serve(node& served, int signal_fd) {
  std::array<pollfd, 2> polled{{{signal_fd, POLLIN, 0}, {served.failure_fd(), POLLIN, 0}}};
  while (poll(polled.data(), polled.size(), -1) < 0 && errno == EINTR)
    continue;
  if (polled[1].revents != 0) {
    log::write(log::level::error, "ending: a part died that the node cannot do without");
    watch_over_the_end(signal_fd, exit_part_died);
    return exit_part_died;
  }
  signalfd_siginfo info{};
  [[maybe_unused]] auto got = read(signal_fd, &info, sizeof(info));
  watch_over_the_end(signal_fd, exit_ok);
  log::write(log::level::info, "ending: draining",
             {{"signal", info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM"}});
  served.stop(grace);
  return exit_ok;
}

} // namespace

int run_daemon(const run_node& what) {
  auto signals = take_signals();
  if (!signals)
    return fail_to_start("cannot receive signals");
  raise_file_limit();
  log::configure(what.config.log_level, what.config.log_format);
  for (const auto& notice : what.notices)
    log::write(log::level::warn, notice);
  auto served = node::start(what.config);
  if (!served)
    return fail_to_start(text_of(served.error()));
  say_ready(**served);
  auto code = serve(**served, signals.fd());
  served->reset();
  log::write(log::level::info, "ended");
  return code;
}

} // namespace kvasir
