// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace kvasir::bench {

/// A kvasird of 1 GiB that engines join, and nobody else. Ended with this object.
class node_process {
public:
  node_process(const std::string& program, unsigned chunk_tokens) {
    auto pattern = (std::filesystem::temp_directory_path() / "kvasir_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("no temporary folder");
    folder_ = pattern;
    socket_ = (folder_ / "engines.sock").string();
    std::vector<std::string> arguments{
      program,     "--lm-port",    "off",
      "--mp-port", "off",          "--http-port",
      "off",       "--pool-size",  "1GiB",
      "--shm",     "on",           "--engine-socket",
      socket_,     "--chunk-size", std::to_string(chunk_tokens)};
    std::vector<char*> argv;
    for (auto& each : arguments)
      argv.push_back(each.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
    for (auto i = 0; !std::filesystem::exists(socket_); ++i) {
      if (i == 2000 || waitpid(pid_, nullptr, WNOHANG) != 0)
        throw std::runtime_error(program + " does not serve");
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
  }

  ~node_process() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }
  node_process(const node_process&) = delete;
  node_process& operator=(const node_process&) = delete;

  const std::string& socket() const { return socket_; }

private:
  std::filesystem::path folder_;
  std::string socket_;
  pid_t pid_ = -1;
};

} // namespace kvasir::bench
