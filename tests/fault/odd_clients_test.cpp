// Clients that send anything, in any portion, and leave in any way.
#include "support/fault_client.hpp"
#include "support/process_stats.hpp"

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

bytes random_bytes(std::mt19937_64& random, size_t size) {
  return value_of(random(), size);
}

/// A request that is right or nearly so.
bytes random_frame(std::mt19937_64& random) {
  static constexpr std::array<int32_t, 8> odd{0, 1, -1, 9, 255, 65'536, INT32_MAX, INT32_MIN};
  auto pick = [&](int32_t usual) {
    return up_to(random, 15) > 0 ? usual : odd[up_to(random, odd.size() - 1)];
  };
  raw_header header;
  header.command = pick(static_cast<int32_t>(1 + up_to(random, 4)));
  header.format = pick(5);
  header.dtype = pick(0);
  header.location = pick(0);
  header.key = numbered_key("odd", up_to(random, 15));
  if (up_to(random, 15) == 0)
    header.key[up_to(random, header.key.size() - 1)] = static_cast<char>(random());
  size_t size = 0;
  if (header.command == 1) {
    constexpr std::array<uint64_t, 5> limits{0, 10, 4096, 20'000, 300'000};
    size = up_to(random, limits[up_to(random, limits.size() - 1)]);
    header.length = pick(static_cast<int32_t>(size));
    header.shape[0] = header.length;
  }
  auto result = header.encode();
  auto body = random_bytes(random, size);
  result.insert(result.end(), body.begin(), body.end());
  return result;
}

/// Sends in portions, takes what comes meanwhile, and leaves at once or after an end.
void converse(fault_client& client, std::mt19937_64& random, std::span<const std::byte> all) {
  bytes ignored(64 * 1024);
  auto take = [&] {
    while (client && recv(client.fd(), ignored.data(), ignored.size(), MSG_DONTWAIT) > 0)
      continue;
  };
  while (client && !all.empty()) {
    auto portion = std::min<size_t>(all.size(), 1 + up_to(random, 1u << up_to(random, 16)));
    client.send_some(all.first(portion));
    all = all.subspan(portion); // What the socket did not take is a gap: garbage as well.
    if (up_to(random, 1) == 0)
      take();
  }
  if (!client)
    return;
  switch (up_to(random, 3)) {
    case 0:
      client.close();
      break;
    case 1:
      client.reset();
      break;
    case 2:
      client.finish_sending();
      take();
      break;
    default:
      break; // Goes as it is, with unread answers.
  }
}

void check_unharmed(const running_daemon& served) {
  CHECK(lm_wire{served.lm_port()}.healthy());
  wait_until([&] { return at_rest(served); });
}

} // namespace

TEST_CASE("random bytes and random requests, cut anywhere, harm nobody else") {
  uint64_t seed = 0;
  auto random = seeded(seed);
  CAPTURE(seed);
  running_daemon served{{"--pool-size", "16MiB", "--log-level", "error"}};
  wait_for_growth(served);
  lm_wire steady{served.lm_port()};
  auto value = value_of(1, 50'000);
  for (auto round = 0; round < 12; ++round) {
    CAPTURE(round);
    for (auto i = 0; i < 25; ++i) {
      bytes stream;
      if (up_to(random, 4) == 0) {
        stream = random_bytes(random, up_to(random, 3000));
        if (!stream.empty() && up_to(random, 1) == 0) { // Looks like a command at first.
          stream.resize(std::max<size_t>(stream.size(), 4));
          stream[0] = static_cast<std::byte>(1 + up_to(random, 4));
          stream[1] = stream[2] = stream[3] = std::byte{0};
        }
      } else {
        for (auto frames = up_to(random, 8); frames-- > 0;) {
          auto frame = random_frame(random);
          stream.insert(stream.end(), frame.begin(), frame.end());
        }
        if (!stream.empty() && up_to(random, 1) == 0)
          stream.resize(up_to(random, stream.size()));
      }
      fault_client client{served.lm_port()};
      REQUIRE(client);
      converse(client, random, stream);
    }
    REQUIRE(served.process().running());
    CHECK(steady.put("steady@1@0@1@half", value));
    CHECK(steady.get("steady@1@0@1@half") == value);
    check_unharmed(served);
  }
  CHECK(served.metric("kvasir_lm_checksum_mismatches_total") == 0);
  CHECK(served.stop().exit_code == 0);
}

TEST_CASE("writes torn by an end, a half end, a reset or a SIGKILL never happened") {
  running_daemon served;
  wait_for_growth(served);
  lm_wire client{served.lm_port()};
  auto good = value_of(1, 70'000);
  REQUIRE(client.put("old@1@0@1@half", good));
  uint64_t torn = 0;
  for (std::string key : {"old@1@0@1@half", "new@1@0@1@half"})
    for (size_t sent : {size_t{1}, size_t{400}, size_t{16'384}, size_t{69'999}})
      for (auto way = 0; way < 4; ++way) {
        CAPTURE(key);
        CAPTURE(sent);
        CAPTURE(way);
        auto frame = put_header(key, 70'000).encode();
        auto part = value_of(2, sent);
        frame.insert(frame.end(), part.begin(), part.end());
        fault_client writer{served.lm_port()};
        REQUIRE(writer.send(frame));
        // The manager has it before it is torn: a reset discards what nobody read.
        wait_until([&] { return status_of(served)["storage"]["write_leases"] == 1; });
        if (way == 0)
          writer.close();
        else if (way == 1)
          writer.reset();
        else if (way == 2)
          writer.finish_sending();
        else {
          // A process of its own holds the connection, and dies with it.
          auto holder = fork();
          REQUIRE(holder >= 0);
          if (holder == 0) {
            pause();
            _exit(0);
          }
          writer.close();
          CHECK(status_of(served)["storage"]["write_leases"] == 1);
          kill(holder, SIGKILL);
          waitpid(holder, nullptr, 0);
        }
        ++torn;
        wait_until([&] { return served.metric("kvasir_lm_torn_puts_total") == torn; });
        wait_until([&] { return at_rest(served); });
      }
  CHECK_FALSE(client.exist("new@1@0@1@half"));
  CHECK_FALSE(client.get("new@1@0@1@half"));
  CHECK(client.get("old@1@0@1@half") == good);
}

TEST_CASE("clients that send a byte at a time delay nobody and still get their answer") {
  running_daemon served;
  wait_for_growth(served);
  lm_wire steady{served.lm_port()};
  REQUIRE(steady.put("m@1@0@1@half", value_of(1, 1000)));
  std::vector<fault_client> slow;
  for (auto i = 0; i < 40; ++i)
    slow.emplace_back(served.lm_port());
  auto put = put_header("slow@1@0@1@half", 64).encode();
  auto body = value_of(9, 64);
  put.insert(put.end(), body.begin(), body.end());
  auto get = get_header("m@1@0@1@half").encode();
  for (size_t at = 0; at < put.size(); ++at) {
    for (size_t i = 0; i < slow.size(); ++i) {
      auto& frame = i % 2 == 0 ? put : get;
      if (at < frame.size())
        REQUIRE(slow[i].send({&frame[at], 1}));
    }
    if (at % 50 == 0)
      CHECK(steady.get("m@1@0@1@half") == value_of(1, 1000));
  }
  for (size_t i = 1; i < slow.size(); i += 2) {
    auto header = slow[i].receive_header();
    REQUIRE(header);
    bytes value(static_cast<size_t>(header->length));
    REQUIRE(slow[i].receive(value));
    CHECK(value == value_of(1, 1000));
  }
  wait_until([&] { return steady.get("slow@1@0@1@half") == body; });
  check_unharmed(served);
}

TEST_CASE("a client that ends its side still gets every answer that is due") {
  running_daemon served;
  wait_for_growth(served);
  lm_wire client{served.lm_port()};
  auto value = value_of(1, mib);
  REQUIRE(client.put("m@1@0@1@half", value));
  for (auto round = 0; round < 10; ++round) {
    lm_wire half{served.lm_port()};
    for (auto i = 0; i < 4; ++i)
      half.send(get_header("m@1@0@1@half").encode());
    half.finish_sending();
    for (auto i = 0; i < 4; ++i) {
      CHECK(half.receive_header().code == kvasir::lm::return_code::success);
      CHECK(half.receive(mib) == value);
    }
    CHECK(half.closed_by_server());
  }
  check_unharmed(served);
}
