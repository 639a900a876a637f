#include "actors/unix_socket.hpp"
#include "messages/join_protocol.hpp"
#include "support/byte_engine.hpp"
#include "support/daemon.hpp"
#include "support/mp_client.hpp"
#include "support/scratch_folder.hpp"
#include "support/worker_process.hpp"

#include <poll.h>

#include <random>

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// A kvasird that engines join.
struct joined_daemon {
  explicit joined_daemon(const std::string& pool = "16MiB")
    : served({"--engine-socket", socket, "--chunk-size",
              std::to_string(byte_engine::chunk_tokens), "--pool-size", pool, "--shm", "on",
              "--lm-port", "off"}) {
    wait([&] {
      return served.metric("kvasir_pool_usable_bytes")
             == served.metric("kvasir_pool_capacity_bytes");
    });
  }

  template <class Predicate>
  static void wait(Predicate done) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::yield();
    }
  }

  /// Until nothing is left of engines that are gone.
  void expect_clean() {
    wait([&] { return served.metric("kvasir_joined_engines") == 0; });
    wait([&] { return served.metric("kvasir_limbo_bytes") == 0; });
    CHECK(served.metric("kvasir_write_leases") == 0);
    CHECK(served.metric("kvasir_read_leases") == 0);
    CHECK(served.metric("kvasir_staged_bytes") == 0);
  }

  scratch_folder folder;
  std::string socket = folder / "engines.sock";
  running_daemon served;
};

/// Stores, looks up, holds and reserves, for ever; says a letter at each step, 'x' if a byte is
/// wrong.
void busy_life(letter_channel channel, const std::string& socket, uint32_t seed) {
  byte_engine engine{socket};
  std::mt19937 random{seed};
  std::vector<std::pair<uint32_t, held_prefix>> held;
  std::vector<std::shared_ptr<stage_set>> staged;
  for (;;) {
    auto number = static_cast<uint32_t>(random() % 40);
    auto letter = 's';
    switch (random() % 4) {
      case 0:
        engine.store(number, 1 + random() % 8);
        break;
      case 1:
      case 2:
        held.emplace_back(number, engine.lookup(number, 8));
        letter = byte_engine::is_exact(held.back().second, number) ? 'l' : 'x';
        break;
      case 3:
        staged.push_back(engine.stage(100 + number, 1 + random() % 3));
        letter = 'r';
        break;
    }
    for (auto& [which, prefix] : held)
      if (!byte_engine::is_exact(prefix, which))
        letter = 'x';
    if (held.size() > 6)
      held.erase(held.begin());
    if (staged.size() > 3)
      staged.clear();
    if (!channel.say(letter))
      return;
  }
}

/// What speaks the protocol by hand.
struct raw_engine {
  explicit raw_engine(const std::string& path) {
    auto connected = connect_to_path(path, std::chrono::seconds{20});
    REQUIRE(connected);
    socket = std::move(*connected);
  }

  void send(const std::vector<char>& bytes) {
    REQUIRE(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL)
            == static_cast<ssize_t>(bytes.size()));
  }

  template <class Request>
  void ask(uint64_t id, const Request& what) {
    std::vector<char> frame;
    join::append_frame(frame, join::question<Request>::code, id, what);
    send(frame);
  }

  /// @returns false if the other side closed.
  bool receive(void* into, size_t size) {
    auto to = static_cast<char*>(into);
    while (size > 0) {
      auto got = receive_with_fds(socket.fd(), {to, size}, fds);
      if (got <= 0)
        return false;
      to += got;
      size -= static_cast<size_t>(got);
    }
    return true;
  }

  /// @returns a header with id 0 at the end.
  join::frame_header answer(std::vector<char>& payload) {
    join::frame_header header;
    if (!receive(&header, sizeof(header)))
      return {};
    payload.resize(header.payload_bytes);
    REQUIRE(receive(payload.data(), payload.size()));
    return header;
  }

  void greet() {
    std::vector<char> frame;
    join::append_frame(frame, join::op::hello, 1, join::hello{.model = "m"});
    send(frame);
    std::vector<char> payload;
    REQUIRE(answer(payload).id == 1);
    CHECK(fds.size() == 3);
  }

  bool closed() {
    char byte = 0;
    return !receive(&byte, 1);
  }

  socket_handle socket;
  std::vector<socket_handle> fds;
};

} // namespace

TEST_CASE("engines killed at any moment leave nothing behind, and no wrong byte") {
  joined_daemon node;
  std::mt19937 random{4711};
  for (uint32_t round = 0; round < 30; ++round) {
    worker_process first{[&](letter_channel channel) {
      busy_life(channel, node.socket, round);
    }};
    worker_process second{[&](letter_channel channel) {
      busy_life(channel, node.socket, 1000 + round);
    }};
    for (auto steps = random() % 120; steps > 0; --steps) {
      REQUIRE(first.hear() != 'x');
      REQUIRE(second.hear() != 'x');
    }
    CHECK(first.kill() == SIGKILL);
    CHECK(second.kill() == SIGKILL);
  }
  node.expect_clean();
  byte_engine engine{node.socket};
  size_t found = 0;
  for (uint32_t number = 0; number < 40; ++number) {
    auto held = engine.lookup(number, 8);
    CHECK(byte_engine::is_exact(held, number));
    found += held.chunks();
  }
  CHECK(found > 0);
  CHECK(engine.core().counters().index_lookups == 40);
}

TEST_CASE("what a frozen engine holds stays, however much others store") {
  joined_daemon node{"4MiB"};
  worker_process frozen{[&](letter_channel channel) {
    byte_engine engine{node.socket};
    engine.store(1, 8);
    auto held = engine.lookup(1, 8);
    channel.say(held.chunks() == 8 ? 'h' : 'x');
    channel.hear();
    channel.say(byte_engine::is_exact(held, 1) ? 'y' : 'n');
    channel.hear();
  }};
  REQUIRE(frozen.hear() == 'h');
  frozen.freeze();
  {
    byte_engine other{node.socket};
    for (uint32_t number = 10; number < 60; ++number)
      other.store(number, 8); // 12 MiB through a pool of 4.
    CHECK(node.served.metric("kvasir_evicted_objects_total") > 0);
    auto held = other.lookup(1, 8);
    CHECK(held.chunks() == 8);
    CHECK(byte_engine::is_exact(held, 1));
  }
  frozen.thaw();
  frozen.say('g');
  CHECK(frozen.hear() == 'y');
  frozen.kill();
  node.expect_clean();
}

TEST_CASE("what a killed engine held gives way again") {
  joined_daemon node{"4MiB"};
  worker_process holder{[&](letter_channel channel) {
    byte_engine engine{node.socket};
    std::vector<held_prefix> held;
    for (uint32_t number = 0; number < 12; ++number) {
      engine.store(number, 8);
      held.push_back(engine.lookup(number, 8));
    }
    channel.say('h');
    channel.hear();
  }};
  REQUIRE(holder.hear() == 'h');
  holder.kill();
  node.expect_clean();
  byte_engine other{node.socket};
  for (uint32_t number = 100; number < 112; ++number)
    CHECK(other.store(number, 8) == 8);
}

TEST_CASE("a node that is killed: engines are told, and join the next one") {
  scratch_folder folder;
  auto socket = folder / "engines.sock";
  auto start = [&] {
    return std::make_unique<running_daemon>(std::vector<std::string>{
      "--engine-socket", socket, "--chunk-size", std::to_string(byte_engine::chunk_tokens),
      "--pool-size", "4MiB", "--shm", "on", "--lm-port", "off", "--mp-port", "off"});
  };
  auto served = start();
  byte_engine engine{socket};
  joined_daemon::wait([&] { return engine.store(1, 4) == 4; });
  auto held = engine.lookup(1, 4);
  REQUIRE(held.chunks() == 4);
  served->kill();
  joined_daemon::wait([&] { return !engine.core().node_answers(); });
  auto refused = engine.client().lookup(engine.prompt_of(1, 4), {}).get();
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == errc::peer_unreachable);
  CHECK(byte_engine::is_exact(held, 1));

  served.reset();
  served = start(); // On the socket's path that the dead one left.
  byte_engine again{socket};
  CHECK(again.lookup(1, 4).chunks() == 0);
  CHECK(byte_engine::is_exact(held, 1));
}

TEST_CASE("who does not speak the protocol is not served, and harms nobody") {
  joined_daemon node;
  byte_engine good{node.socket};
  CHECK(good.store(1, 4) == 4);

  raw_engine stranger{node.socket};
  stranger.send(std::vector<char>(4096, 'G'));
  CHECK(stranger.closed());

  raw_engine newer{node.socket};
  std::vector<char> frame;
  join::append_frame(frame, join::op::hello, 1, join::hello{.version = 99});
  newer.send(frame);
  std::vector<char> payload;
  auto refused = newer.answer(payload);
  CHECK(join::error_of(refused, payload.data()) == errc::invalid_argument);
  CHECK(newer.fds.empty());

  raw_engine broken{node.socket};
  broken.greet();
  join::frame_header header{100, join::op::reserve_chunks, 0, 2};
  std::vector<char> noise(sizeof(header) + 100, '\xff');
  std::memcpy(noise.data(), &header, sizeof(header));
  broken.send(noise);
  CHECK(broken.closed()); // Our side is; the node keeps what it lent until we are gone.
  CHECK(node.served.metric("kvasir_join_protocol_errors_total") == 1);
  CHECK(node.served.metric("kvasir_joined_engines") >= 2);

  raw_engine huge{node.socket};
  huge.greet();
  header = {join::max_payload_bytes + 1, join::op::reserve_chunks, 0, 2};
  std::vector<char> start(sizeof(header));
  std::memcpy(start.data(), &header, sizeof(header));
  huge.send(start);
  CHECK(huge.closed());

  CHECK(good.lookup(1, 4).chunks() == 4);
  CHECK(good.store(2, 4) == 4);
}

TEST_CASE("an engine can neither end nor publish what is another's") {
  joined_daemon node;
  byte_engine good{node.socket};
  auto staged = good.stage(1, 2);
  CHECK(node.served.metric("kvasir_write_leases") == 2);

  raw_engine thief{node.socket};
  thief.greet();
  std::vector<char> payload;
  end_leases all;
  finish_chunks publish;
  for (lease_id id = 0; id < 64; ++id) {
    all.leases.push_back(id);
    publish.writes.push_back({id, 0});
  }
  thief.ask(2, publish);
  CHECK(thief.answer(payload).status == 0);
  thief.ask(3, all);
  CHECK(thief.answer(payload).status == 0);
  CHECK(node.served.metric("kvasir_join_foreign_leases_total") == 128);
  CHECK(node.served.metric("kvasir_write_leases") == 2);
  CHECK(node.served.metric("kvasir_objects") == 0);

  // Nor take an lm:// object for a chunk, which may change under its readers.
  thief.ask(4, acquire_chunks{0, {{"vllm@m@1@0@1@half"}}, true});
  auto refused = thief.answer(payload);
  CHECK(join::error_of(refused, payload.data()) == errc::invalid_argument);
}

TEST_CASE("a reservation that is not finished in time gives up its key") {
  scratch_folder folder;
  auto socket = folder / "engines.sock";
  running_daemon served{{"--engine-socket", socket, "--chunk-size",
                         std::to_string(byte_engine::chunk_tokens), "--pool-size", "4MiB",
                         "--shm", "on", "--write-ttl", "200ms", "--lm-port", "off"}};
  byte_engine slow{socket};
  byte_engine other{socket};
  joined_daemon::wait([&] { return other.store(1, 1) == 1; });
  auto staged = slow.stage(5, 1);
  joined_daemon::wait([&] { return other.store(5, 1) == 1; });
  CHECK(served.metric("kvasir_join_expired_writes_total") == 1);
  CHECK(byte_engine::is_exact(other.lookup(5, 1), 5));
}

TEST_CASE("what an engine stored over MP a joined one finds, and the other way round") {
  scratch_folder folder;
  auto socket = folder / "engines.sock";
  running_daemon served{{"--engine-socket", socket, "--chunk-size",
                         std::to_string(chunk_tokens), "--shm", "on", "--lm-port", "off"}};
  mp_client over_mp{served.mp_port()};
  REQUIRE(over_mp.enroll(1));
  test::chunk_range stored{.prompt = 1, .last = 3};
  joined_daemon::wait([&] { return over_mp.store(stored); });

  engine_options options;
  options.model = stored.model;
  options.layout = {tensor_dtype::float16, false, 2, chunk_tokens, 128, chunk_tokens};
  options.node = socket;
  auto core = engine_core::open(options, nullptr);
  REQUIRE(core);
  byte_client joined{*core};
  auto held = joined.lookup(joined.make_prompt(stored.tokens()), {}).get();
  REQUIRE(held);
  REQUIRE(held->chunks() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    auto found = held->holds()->bytes(i);
    CHECK(bytes(found.begin(), found.end()) == chunk_value(stored, i, over_mp.layout));
  }

  test::chunk_range other{.prompt = 2, .last = 2, .request = "other"};
  auto data = std::make_shared<std::vector<bytes>>(chunk_values(other, over_mp.layout));
  store_call::source from{{(*data)[0], (*data)[1]}, data};
  auto done = joined.store(joined.make_prompt(other.tokens()), std::move(from), 0, {}).get();
  REQUIRE(done);
  CHECK(done->resident == 2);
  CHECK(over_mp.exact_prefix(other) == 2);
  joined.close();
}
