// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <doctest/doctest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <utility>

namespace kvasir::test {

/// One end of a conversation in single letters.
class letter_channel {
public:
  letter_channel() = default;
  letter_channel(int in, int out) : in_(in), out_(out) {}

  bool say(char letter) const { return write(out_, &letter, 1) == 1; }

  /// Waits for a letter. @returns 0 if the other end is gone.
  char hear() const {
    char letter = 0;
    return read(in_, &letter, 1) == 1 ? letter : '\0';
  }

  int in() const { return in_; }
  int out() const { return out_; }

private:
  int in_ = -1;
  int out_ = -1;
};

/// A process of its own that runs a function, to be frozen and killed. It has nothing open of the
/// test's but the channel. Killed and reaped with this object at the latest.
class worker_process {
public:
  /// `body(letter_channel)` must not use doctest.
  template <class Body>
  explicit worker_process(Body body) {
    std::array<int, 2> down{};
    std::array<int, 2> up{};
    REQUIRE(pipe(down.data()) == 0);
    REQUIRE(pipe(up.data()) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run({down[0], up[1]}, std::move(body));
    }
    close(down[0]);
    close(up[1]);
    channel_ = letter_channel{up[0], down[1]};
  }

  worker_process(const worker_process&) = delete;
  worker_process& operator=(const worker_process&) = delete;

  ~worker_process() {
    kill();
    close(channel_.in());
    close(channel_.out());
  }

  pid_t pid() const { return pid_; }
  void say(char letter) const { REQUIRE(channel_.say(letter)); }
  char hear() const { return channel_.hear(); }

  /// Returns when it is stopped.
  void freeze() const {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    REQUIRE(waitpid(pid_, &status, WUNTRACED) == pid_);
    REQUIRE(WIFSTOPPED(status));
  }

  void thaw() const { ::kill(pid_, SIGCONT); }

  /// SIGKILL. @returns the signal that ended it, 0 if it had ended by itself.
  int kill() {
    if (pid_ > 0) {
      int status = 0;
      ::kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      pid_ = -1;
      ended_by_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    return ended_by_;
  }

  /// Waits for its end. @returns the signal that ended it, 0 if none did.
  int join() {
    if (pid_ > 0) {
      int status = 0;
      waitpid(pid_, &status, 0);
      pid_ = -1;
      ended_by_ = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    return ended_by_;
  }

private:
  template <class Body>
  [[noreturn]] static void run(letter_channel channel, Body body) {
    // A connection that is open here, too, would outlive its client.
    for (int fd = 3; fd < 1024; ++fd)
      if (fd != channel.in() && fd != channel.out())
        close(fd);
    try {
      body(channel);
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }

  pid_t pid_ = -1;
  int ended_by_ = 0;
  letter_channel channel_;
};

} // namespace kvasir::test
