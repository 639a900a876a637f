// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kvasir::test {

/// How a process ended.
struct outcome {
  int exit_code = -1; ///< -1: by `signal`.
  int signal = 0;
  std::string out;
  std::string err;
  std::chrono::milliseconds took{0}; ///< Since it was started.
};

inline size_t line_count(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// A program that a test started. Killed and reaped with this object at the latest, and when
/// the test program dies.
class child_process {
public:
  /// `program`: a name in the build's bin folder, or a path. `environment`: "NAME=value" to
  /// add; variables KVASIR_… of the test's own environment are not passed on.
  explicit child_process(const std::string& program, std::vector<std::string> arguments = {},
                         std::vector<std::string> environment = {}, int input_fd = -1) {
    auto path = program.find('/') == std::string::npos
                  ? std::string{KVASIR_BIN_DIR} + "/" + program
                  : program;
    arguments.insert(arguments.begin(), path);
    for (auto entry = environ; *entry != nullptr; ++entry)
      if (std::string_view{*entry}.substr(0, 7) != "KVASIR_")
        environment.emplace_back(*entry);
    auto argv = pointers(arguments);
    auto envp = pointers(environment);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      auto input = input_fd >= 0 ? input_fd : open("/dev/null", O_RDONLY);
      dup2(input, STDIN_FILENO);
      dup2(fileno(out_.get()), STDOUT_FILENO);
      dup2(fileno(err_.get()), STDERR_FILENO);
      execve(path.c_str(), argv.data(), envp.data());
      _exit(127);
    }
  }

  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() { kill(); }

  pid_t pid() const { return pid_; }

  /// What it wrote so far.
  std::string out() const { return content(*out_); }
  std::string err() const { return content(*err_); }

  bool running() {
    reap(WNOHANG);
    return !ended_;
  }

  void send(int signal) {
    if (running())
      ::kill(pid_, signal);
  }

  /// Ends it by SIGKILL.
  void kill() {
    send(SIGKILL);
    reap(0);
  }

  /// Fails the test if it does not end by itself within `limit`.
  outcome wait(std::chrono::milliseconds limit = std::chrono::seconds{20}) {
    auto deadline = std::chrono::steady_clock::now() + limit;
    while (running()) {
      REQUIRE_MESSAGE(std::chrono::steady_clock::now() < deadline, "the process does not end");
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    outcome result;
    if (WIFEXITED(status_))
      result.exit_code = WEXITSTATUS(status_);
    else
      result.signal = WTERMSIG(status_);
    result.out = out();
    result.err = err();
    result.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - started_);
    return result;
  }

private:
  using file = std::unique_ptr<FILE, int (*)(FILE*)>;

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (auto& text : texts)
      result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }

  static std::string content(FILE& from) {
    std::string result;
    std::array<char, 4096> piece{};
    for (off_t at = 0;;) {
      auto got = pread(fileno(&from), piece.data(), piece.size(), at);
      if (got <= 0)
        return result;
      result.append(piece.data(), static_cast<size_t>(got));
      at += got;
    }
  }

  void reap(int flags) {
    if (!ended_ && waitpid(pid_, &status_, flags) == pid_)
      ended_ = true;
  }

  file out_{std::tmpfile(), &std::fclose};
  file err_{std::tmpfile(), &std::fclose};
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

/// Runs a program to its end.
inline outcome run(const std::string& program, std::vector<std::string> arguments = {},
                   std::vector<std::string> environment = {},
                   std::chrono::milliseconds limit = std::chrono::seconds{20}) {
  return child_process{program, std::move(arguments), std::move(environment)}.wait(limit);
}

} // namespace kvasir::test
