// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "support/mp_client.hpp"
#include "support/process_stats.hpp"

namespace kvasir::test {

/// A kvasird for MP clients: short chunks, a pool that they can map and that is all there.
class mp_daemon : public running_daemon {
public:
  explicit mp_daemon(std::vector<std::string> arguments = {})
    : running_daemon(with_chunk_size(std::move(arguments))) {
    wait_for_growth(*this);
  }

  uint64_t storage(const std::string& name) const { return number_of("storage", name); }
  uint64_t sessions(const std::string& name) const { return number_of("sessions", name); }
  uint64_t mp(const std::string& name) const { return number_of("mp", name); }

  /// The sum over all instances.
  uint64_t engines(const std::string& name) const {
    uint64_t sum = 0;
    auto status = status_of(*this);
    for (auto& engine : status.at("engines"))
      sum += engine.at(name).get<uint64_t>();
    return sum;
  }

  /// No lookup, transfer or copy is under way, and nothing that one of them held is left.
  bool mp_at_rest() const {
    auto status = status_of(*this);
    auto& storage = status.at("storage");
    return storage.at("claimed_bytes") == 0 && storage.at("held_bytes") == 0
           && storage.at("write_leases") == 0 && storage.at("read_leases") == 0
           && storage.at("staged_bytes") == 0 && storage.at("expired_leases") == 0;
  }

  void wait_for_rest() const {
    wait_until([&] { return mp_at_rest(); });
  }

private:
  static std::vector<std::string> with_chunk_size(std::vector<std::string> arguments) {
    auto given = [&](const std::string& flag) {
      return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
    };
    if (!given("--shm")) {
      arguments.emplace_back("--shm");
      arguments.emplace_back("on");
    }
    arguments.emplace_back("--chunk-size");
    arguments.push_back(std::to_string(chunk_tokens));
    return arguments;
  }

  uint64_t number_of(const std::string& part, const std::string& name) const {
    return status_of(*this).at(part).at(name).get<uint64_t>();
  }
};

} // namespace kvasir::test
