// A million objects: work over the whole index must not keep other clients waiting.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

/// An EXIST after the other on a connection of its own, counted, until it is told to stop.
class prober {
public:
  prober(uint16_t port, std::string key)
    : thread_([this, port, key = std::move(key)] {
        fault_client client{port};
        while (!stop_ && client.exist(key))
          ++answers_;
        lost_ = !stop_;
      }) {}

  ~prober() {
    stop_ = true;
    thread_.join();
  }

  uint64_t answers() const { return answers_; }
  bool lost() const { return lost_; }

private:
  std::atomic<uint64_t> answers_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> lost_{false};
  std::thread thread_;
};

/// Stores objects without waiting for each; the EXIST at the end waits for all of this part.
bool fill(uint16_t port, uint64_t first, uint64_t last, size_t size) {
  fault_client client{port};
  bytes batch;
  for (auto i = first; i < last && client; ++i) {
    auto frame = put_header(numbered_key("m", i), static_cast<int32_t>(size)).encode();
    batch.insert(batch.end(), frame.begin(), frame.end());
    batch.resize(batch.size() + size, static_cast<std::byte>(i));
    if (batch.size() >= mib || i + 1 == last) {
      client.send(batch);
      batch.clear();
    }
  }
  return client.exist(numbered_key("m", last - 1)) == true;
}

} // namespace

TEST_CASE("LIST and clear of a million objects let others on") {
  constexpr uint64_t objects = sanitized ? 200'000 : 1'000'000;
  constexpr uint64_t pool_bytes = objects * 5 * 1024;
  constexpr size_t size = 3000; // One page each.
  auto free_bytes = std::min(available_memory_bytes(), free_shared_memory_bytes());
  if (free_bytes < pool_bytes + pool_bytes / 2) {
    MESSAGE("skipped: needs " << pool_bytes + pool_bytes / 2 << " bytes of memory, there are "
                              << free_bytes);
    return;
  }
  running_daemon served{{"--pool-size", std::to_string(pool_bytes)}};
  wait_for_growth(served);
  REQUIRE(fill(served.lm_port(), 0, objects, size));
  REQUIRE(served.metric("kvasir_objects") == objects);

  prober other{served.lm_port(), "absent@1@0@1@half"};
  wait_until([&] { return other.answers() > 0; });

  // LIST names as many as 4 MiB of text hold, and says that it left some out.
  lm_wire lister{served.lm_port(), 60'000};
  auto before = other.answers();
  lister.send(raw_header{4, 0, 1, 2, 0, {}, "m@1@0@1@half"}.encode());
  auto header = lister.receive_header();
  auto during_list = other.answers() - before;
  CHECK(header.code == kvasir::lm::return_code::success);
  auto text = lister.receive(static_cast<size_t>(header.length));
  CHECK(text.size() == static_cast<size_t>(header.length));
  CHECK(text.size() <= 4 * mib);
  auto names = static_cast<int32_t>(std::count(text.begin(), text.end(), std::byte{'\n'})) + 1;
  CHECK(header.layout.shape[0] == names);
  CHECK(names >= 100'000);
  CHECK(during_list >= 10);

  // A second one over HTTP: all objects, in slices.
  uint64_t listed = 0;
  uint64_t cursor = 0;
  do {
    auto slice
      = nlohmann::json::parse(served.get("/v1/objects?cursor=" + std::to_string(cursor)).body);
    listed += slice["objects"].size();
    cursor = slice["next_cursor"];
  } while (cursor != 0);
  CHECK(listed == objects);

  before = other.answers();
  CHECK(http(served.http_port(), "POST", "/v1/clear").status == 200);
  lm_wire client{served.lm_port()};
  CHECK_FALSE(
    client.exist(numbered_key("m", 0))); // Gone at once, though memory is not yet free.
  wait_until(
    [&] {
      auto storage = status_of(served)["storage"];
      return storage["objects"] == 0 && storage["used_bytes"] == 0;
    },
    60s);
  auto during_clear = other.answers() - before;
  MESSAGE("EXISTs answered during LIST: " << during_list << ", during clear: " << during_clear);
  CHECK(during_clear >= 50);
  CHECK_FALSE(other.lost());
  CHECK(client.put("m@1@0@1@half", value_of(1, 3000)));
  CHECK(served.metric("kvasir_objects") == 1);
}
