// kvasird ended by SIGKILL: what its clients saw until then, and what the next start finds.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

#include <memory>

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t key_count = 48;
constexpr std::array<size_t, 6> sizes{8, 100, 4096, 20'000, 65'537, 700'001};

/// A key's value changes with its version, its size too. The version is its first word.
size_t size_of(uint64_t seed) {
  return sizes[value_word(seed, 0) % sizes.size()];
}

uint64_t seed_of(uint64_t key, uint64_t version) {
  return key << 32 | version;
}

bytes stamped(uint64_t key, uint64_t version) {
  auto seed = seed_of(key, version);
  auto result = value_of(seed, size_of(seed));
  std::memcpy(result.data(), &version, sizeof(version));
  return result;
}

bool is_stamped(const bytes& found, uint64_t key) {
  uint64_t version = 0;
  if (found.size() < sizeof(version))
    return false;
  std::memcpy(&version, found.data(), sizeof(version));
  return found == stamped(key, version);
}

struct load_counters {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> hits{0};
  std::atomic<uint64_t> wrong{0};
};

/// Writes and reads keys that others write and read, too, until the connection is lost.
void load(uint16_t port, uint64_t seed, load_counters& count) {
  std::mt19937_64 random{seed};
  fault_client client{port};
  bytes value;
  for (;;) {
    auto key = up_to(random, key_count - 1);
    if (up_to(random, 1) == 0) {
      auto version = up_to(random, 1000);
      if (!client.send_put(numbered_key("kill", key), stamped(key, version)))
        return;
    } else {
      auto found = client.get(numbered_key("kill", key), value);
      if (found == fault_client::found::lost)
        return;
      if (found == fault_client::found::hit) {
        ++count.hits;
        if (!is_stamped(value, key))
          ++count.wrong;
      }
    }
    ++count.steps;
  }
}

} // namespace

TEST_CASE("SIGKILL at any point of a load: no wrong byte before, nothing left after") {
  uint64_t seed = 0;
  auto random = seeded(seed);
  CAPTURE(seed);
  uint64_t hits = 0;
  std::unique_ptr<running_daemon> dead; // Its object would remove what it left.
  for (auto round = 0; round < 50; ++round) {
    CAPTURE(round);
    auto served
      = std::make_unique<running_daemon>(std::vector<std::string>{"--pool-size", "16MiB"});
    if (dead) {
      CHECK(dead->segment_paths().empty());
      lm_wire client{served->lm_port()};
      for (uint64_t key = 0; key < key_count; ++key)
        CHECK_FALSE(client.exist(numbered_key("kill", key)));
      dead.reset();
    }
    load_counters count;
    std::vector<std::thread> clients;
    for (auto c = 0; c < 4; ++c)
      clients.emplace_back(load, served->lm_port(), random(), std::ref(count));
    auto steps = up_to(random, 300);
    auto deadline = std::chrono::steady_clock::now() + 20s;
    while (count.steps < steps && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    served->kill();
    for (auto& client : clients)
      client.join();
    REQUIRE(count.steps >= steps);
    CHECK(count.wrong == 0);
    hits += count.hits;
    dead = std::move(served);
  }
  CHECK(hits > 0);
}

TEST_CASE("SIGKILL in the middle of a start does not stand in the way of the next") {
  uint64_t seed = 0;
  auto random = seeded(seed);
  CAPTURE(seed);
  const std::vector<std::string> arguments{"--lm-port",   "0", "--mp-port",   "0",
                                           "--http-port", "0", "--pool-size", "256MiB"};
  // How long a start takes here tells where to strike.
  auto before = std::chrono::steady_clock::now();
  { running_daemon whole{arguments}; }
  auto whole_us = std::chrono::duration_cast<std::chrono::microseconds>(
                    std::chrono::steady_clock::now() - before)
                    .count();
  file_set left;
  for (auto round = 0; round < 20; ++round) {
    child_process victim{"kvasird", arguments};
    std::this_thread::sleep_for(
      std::chrono::microseconds{up_to(random, static_cast<uint64_t>(whole_us))});
    victim.send(SIGSTOP);
    left.merge(shared_files(victim.pid()));
    victim.kill();
  }
  before = std::chrono::steady_clock::now();
  running_daemon next{arguments};
  CHECK(std::chrono::steady_clock::now() - before < 10s);
  MESSAGE("segments left by 20 killed starts: " << left.size());
  for (const auto& entry : std::filesystem::directory_iterator{"/dev/shm"}) {
    struct stat found {};
    if (lstat(entry.path().c_str(), &found) == 0)
      CHECK_MESSAGE(left.count({found.st_dev, found.st_ino}) == 0, entry.path().string());
  }
  CHECK(lm_wire{next.lm_port()}.put("m@1@0@1@half", to_bytes("fresh")));
}
