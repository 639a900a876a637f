// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/node.hpp"
#include "support/lm_wire.hpp"

#include <chrono>
#include <thread>

namespace kvasir::test {

/// A node in this process that serves lm:// on a free port, over private memory.
struct node_fixture {
  static constexpr uint64_t mib = 1 << 20;

  explicit node_fixture(uint64_t pool_bytes = 64 * mib, unsigned io_threads = 2)
    : node_fixture([&] {
        node_config config;
        config.pool_bytes = pool_bytes;
        config.io_threads = io_threads;
        return config;
      }()) {}

  explicit node_fixture(node_config config) {
    config.lm_port = 0;
    config.mp_port = 0;
    config.http_port = std::nullopt;
    config.shm = shm_pool::sharing::off;
    auto started = node::start(config);
    REQUIRE(started);
    served = std::move(*started);
    wait([&] { return !served->status().growing; });
  }

  lm_wire client() { return lm_wire{served->lm_port()}; }

  uint64_t count(lm_count what) const {
    return served->status().lm.counters.at(static_cast<size_t>(what));
  }

  storage_status storage() const { return served->status().storage; }

  /// Waits for something that another thread brings about; fails after 20 s.
  template <class Predicate>
  static void wait(Predicate done) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::yield();
    }
  }

  std::unique_ptr<node> served;
};

} // namespace kvasir::test
