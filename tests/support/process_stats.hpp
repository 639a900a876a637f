// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "support/daemon.hpp"

#include <nlohmann/json.hpp>

namespace kvasir::test {

/// Sanitizers need memory of their own: bounds on the resident size say nothing then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

inline constexpr uint64_t mib = 1 << 20;

/// What /proc tells of a running process.
struct process_stats {
  uint64_t anonymous_bytes = 0;
  uint64_t shared_bytes = 0;
  size_t threads = 0;
  size_t files = 0;

  uint64_t resident_bytes() const { return anonymous_bytes + shared_bytes; }
};

inline process_stats stats_of(pid_t pid) {
  process_stats result;
  auto folder = "/proc/" + std::to_string(pid);
  std::ifstream status{folder + "/status"};
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields{line};
    std::string name;
    uint64_t number = 0;
    fields >> name >> number;
    if (name == "RssAnon:")
      result.anonymous_bytes = number * 1024;
    else if (name == "RssShmem:")
      result.shared_bytes = number * 1024;
    else if (name == "Threads:")
      result.threads = number;
  }
  std::error_code ignored;
  for ([[maybe_unused]] auto& entry :
       std::filesystem::directory_iterator{folder + "/fd", ignored})
    ++result.files;
  return result;
}

/// Bytes that the machine could still give to processes.
inline uint64_t available_memory_bytes() {
  std::ifstream info{"/proc/meminfo"};
  for (std::string line; std::getline(info, line);) {
    std::istringstream fields{line};
    std::string name;
    uint64_t number = 0;
    fields >> name >> number;
    if (name == "MemAvailable:")
      return number * 1024;
  }
  return 0;
}

/// Bytes that /dev/shm could still take.
inline uint64_t free_shared_memory_bytes() {
  std::error_code failed;
  auto space = std::filesystem::space("/dev/shm", failed);
  return failed ? 0 : space.available;
}

/// Waits for something that another process brings about; fails the test after `limit`.
template <class Predicate>
void wait_until(Predicate done, std::chrono::seconds limit = std::chrono::seconds{20}) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    REQUIRE_MESSAGE(std::chrono::steady_clock::now() < deadline, "waited too long");
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

inline nlohmann::json status_of(const running_daemon& served) {
  return nlohmann::json::parse(served.get("/v1/status").body);
}

/// No transfer is under way and nothing waits: whatever clients left behind is gone.
inline bool at_rest(const running_daemon& served) {
  auto storage = status_of(served)["storage"];
  return storage["claimed_bytes"] == 0 && storage["held_bytes"] == 0
         && storage["write_leases"] == 0 && storage["read_leases"] == 0
         && storage["waiting"] == 0;
}

inline void wait_for_growth(const running_daemon& served) {
  wait_until([&] { return served.metric("kvasir_pool_growing") == 0; },
             std::chrono::seconds{60});
}

} // namespace kvasir::test
