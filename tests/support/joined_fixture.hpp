// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/join_door.hpp"
#include "actors/node.hpp"
#include "support/embedded_client.hpp"
#include "support/scratch_folder.hpp"

#include <memory>
#include <thread>

namespace kvasir::test {

/// A node in this process that engines join; chunks as `small_options` has them.
struct joined_fixture {
  explicit joined_fixture(node_config config = {}) {
    config.lm_port = std::nullopt;
    config.mp_port = std::nullopt;
    config.http_port = std::nullopt;
    config.io_threads = 1;
    config.pool_bytes = 16 << 20;
    config.shm = shm_pool::sharing::on;
    config.chunk_size = small_options().layout.slots;
    config.engine_socket = folder / "engines.sock";
    auto started = node::start(config);
    if (!started)
      FAIL(to_string(started.error()));
    served = std::move(*started);
    wait([&] { return !served->status().growing; });
  }

  engine_options options() const {
    auto result = small_options();
    result.node = folder / "engines.sock";
    return result;
  }

  uint64_t count(join_count what) const {
    return served->status().join.counters.at(static_cast<size_t>(what));
  }

  /// Waits for something that another thread or process brings about.
  template <class Predicate>
  static void wait(Predicate done) {
    auto deadline = std::chrono::steady_clock::now() + patience;
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::yield();
    }
  }

  scratch_folder folder;
  std::unique_ptr<node> served;
};

} // namespace kvasir::test
