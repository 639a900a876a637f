// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/shm_pool.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

/// What the tests of the pool's memory and of its names share.
namespace shm_fixture {

using kvasir::shm_pool;

inline constexpr uint64_t mib = 1 << 20;

inline std::string path_of(const std::string& name) {
  return "/dev/shm/" + name;
}

/// A name that no other run of this test uses.
inline std::string own_name(const char* suffix) {
  return "kvasir_test_" + std::to_string(::getpid()) + '_' + suffix;
}

inline shm_pool::options shared(uint64_t capacity_bytes, std::string name = {}) {
  return {capacity_bytes, shm_pool::sharing::on, std::move(name), mib};
}

inline std::unique_ptr<shm_pool> must_open(shm_pool::options opts) {
  auto pool = shm_pool::open(std::move(opts));
  INFO((pool ? std::string{} : to_string(pool.error())));
  REQUIRE(pool);
  return std::move(*pool);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs `body` in a child process. @returns its exit code, or minus the signal that ended it.
inline int in_child(const std::function<int()>& body) {
  auto pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0)
    ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Runs `body` in a child that has a /dev/shm of `size_bytes` of its own.
/// @returns its exit code; 77 if this process may not mount.
inline int with_own_shm(uint64_t size_bytes, const std::function<int()>& body) {
  return in_child([&] {
    auto size = "size=" + std::to_string(size_bytes);
    if (::unshare(CLONE_NEWNS) != 0
        || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr)
        || ::mount("tmpfs", "/dev/shm", "tmpfs", 0, size.c_str()) != 0)
      return 77;
    return body();
  });
}

/// A child process that opens a pool and then waits to be killed.
struct other_owner {
  pid_t pid = 0;
  std::string name;

  explicit other_owner(const std::string& explicit_name = {}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      auto pool = shm_pool::open(shared(mib, explicit_name));
      if (!pool || !(*pool)->grow())
        ::_exit(1);
      auto text = (*pool)->name() + '\n';
      if (::write(ends[1], text.data(), text.size()) < 0)
        ::_exit(1);
      for (;;)
        ::pause();
    }
    ::close(ends[1]);
    char c = 0;
    while (::read(ends[0], &c, 1) == 1 && c != '\n')
      name += c;
    ::close(ends[0]);
  }

  void kill() {
    if (pid == 0)
      return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }

  ~other_owner() { kill(); }
};

inline void check_unless_skipped(int rc) {
  if (rc == 77)
    MESSAGE("skipped: this process may not mount");
  else
    CHECK(rc == 0);
}

inline std::ptrdiff_t count_of_entries() {
  return std::distance(std::filesystem::directory_iterator("/dev/shm"),
                       std::filesystem::directory_iterator{});
}

} // namespace shm_fixture
