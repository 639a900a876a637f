// Chunks that travel in the message: also on a server with shared memory, and when there is too
// much of them.
#include "support/mp_daemon.hpp"

using namespace kvasir::test;

TEST_CASE("inline data fills the chunks whose slots its sender could not map") {
  mp_daemon served;
  mp_client blind{served.mp_port()};
  REQUIRE(blind.enroll(1, {}, "m", 1, false));
  chunk_range range{.prompt = 1, .last = 4};
  REQUIRE(blind.prepare_store(range).slots.size() == 4);
  CHECK(blind.commit_store(range, blind.inline_data(range)).is_true());
  CHECK(served.engines("pending_writes") == 0);
  CHECK(blind.exact_prefix(range) == 4);
  served.wait_for_rest();
  // Whoever can map the pool finds the same chunks there.
  mp_client mapped{served.mp_port()};
  REQUIRE(mapped.enroll(2));
  REQUIRE(mapped.pool);
  CHECK(mapped.exact_prefix(range) == 4);
  CHECK(mapped.prepare_store(range).slots.empty());
  // And who cannot, although it never stored anything, is sent the bytes.
  mp_client reader{served.mp_port()};
  REQUIRE(reader.enroll(3, {}, "m", 1, false));
  CHECK(reader.exact_prefix(range) == 4);
  served.wait_for_rest();
}

TEST_CASE("chunks of an inline store that do not fit leave no reservation in the way") {
  for (std::string shm : {"on", "off"}) {
    CAPTURE(shm);
    mp_daemon served{{"--shm", shm}};
    mp_client client{served.mp_port()};
    REQUIRE(client.enroll(1, {}, "m", 1, false));
    chunk_range range{.prompt = 1, .last = 3};
    chunk_range one{.prompt = 1, .last = 1};
    client.prepare_store(range);
    CHECK(client.commit_store(range, client.inline_data(one)).is_false());
    CHECK(client.lookup(range) == 1);
    client.end_session("r");
    CHECK(served.engines("skipped_missing") == 2);
    CHECK(served.storage("write_leases") == 0);

    auto narrow = client.layout;
    narrow.hidden /= 2;
    auto wrong = pickled(chunk_values(range, narrow), narrow.type(), narrow.dims());
    client.prepare_store(range);
    CHECK(client.commit_store(range, wrong).is_false());
    CHECK(served.engines("skipped_shape") == 2);
    CHECK(served.storage("write_leases") == 0);

    client.prepare_store(range);
    CHECK(client.commit_store(range, std::string{"\x80\x04].", 4}).is_false());
    CHECK(served.engines("skipped_missing") == 4);
    CHECK(served.storage("write_leases") == 0);
    CHECK(served.storage("objects") == 1);

    client.prepare_store(range);
    CHECK(client.commit_store(range, client.inline_data(range)).is_true());
    CHECK(client.exact_prefix(range) == 3);
    served.wait_for_rest();
  }
}

TEST_CASE("tensors of another dtype are refused, not converted") {
  mp_daemon served;
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1, {}, "m", 1, false));
  chunk_range range{.prompt = 1, .last = 2};
  for (std::string dtype : {"float32", "bfloat16", "int16", "float8_e4m3fn"}) {
    CAPTURE(dtype);
    auto other = client.layout;
    other.dtype = dtype;
    auto data = pickled(chunk_values(range, other), other.type(), other.dims());
    CHECK(client.commit_store(range, data).is_false());
    CHECK(client.lookup(range) == 0);
  }
  CHECK(served.engines("skipped_shape") == 8);
  CHECK(client.commit_store(range, client.inline_data(range)).is_true());
  CHECK(client.exact_prefix(range) == 2);
  served.wait_for_rest();
}

TEST_CASE("chunks of every dtype go in and out byte for byte") {
  for (std::string dtype : {"float16", "bfloat16", "float32", "float8_e4m3fn", "uint8"})
    for (auto inline_data : {false, true}) {
      CAPTURE(dtype);
      CAPTURE(inline_data);
      mp_daemon served;
      mp_layout layout;
      layout.dtype = dtype;
      layout.single_plane = true;
      layout.slots = chunk_tokens / 4; // Compressed: fewer slots than tokens.
      mp_client client{served.mp_port()};
      REQUIRE(client.enroll(1, layout, "m", 1, !inline_data));
      chunk_range range{.prompt = 1, .last = 3};
      auto plan = client.prepare_store(range);
      REQUIRE(plan.slots.size() == 3);
      for (auto& slot : plan.slots)
        CHECK(slot.length == layout.chunk_bytes());
      if (inline_data) {
        CHECK(client.commit_store(range, client.inline_data(range)).is_true());
      } else {
        client.fill(range, plan);
        CHECK(client.commit_store(range).is_true());
      }
      CHECK(client.exact_prefix(range) == 3);
      served.wait_for_rest();
    }
}

TEST_CASE("a full pool is said to be full, and nothing more is promised than is there") {
  for (auto attach : {true, false}) {
    CAPTURE(attach);
    mp_daemon served{{"--pool-size", "16MiB"}};
    auto layout = large_layout(2);
    mp_client client{served.mp_port()};
    REQUIRE(client.enroll(1, layout, "m", 1, attach));
    chunk_range held{.prompt = 1, .last = 6, .request = "held"};
    for (uint32_t i = 0; i < 6; ++i)
      REQUIRE(client.store({.prompt = 1, .first = i, .last = i + 1}));
    REQUIRE(client.lookup(held) == 6);
    chunk_range more{.prompt = 2, .last = 4, .request = "more"};
    CHECK_FALSE(client.store(more));
    auto found = client.exact_prefix(more);
    CHECK(found >= 0);
    CHECK(found < 4);
    CHECK(client.prepare_store(more).no_buffers);
    CHECK(client.commit_store(more).is_false());
    CHECK(served.storage("chunks_no_room") > 0);
    CHECK(client.retrieves_exactly(held));
    client.end_session("held");
    CHECK(client.store(more));
    CHECK(client.exact_prefix(more) == 4);
    served.wait_for_rest();
  }
}

TEST_CASE("replies whose memory is used again at once arrive whole") {
  mp_daemon served{{"--pool-size", "64MiB", "--shm", "off"}};
  std::atomic<int> wrong{0};
  std::atomic<int> read{0};
  std::vector<std::thread> readers;
  for (uint64_t c = 1; c <= 4; ++c)
    readers.emplace_back([&, c] {
      mp_client client{served.mp_port()};
      if (!client.enroll(c, large_layout(1)))
        return;
      // One chunk, two, three: buffers of other sizes, with other bytes, of others.
      for (uint64_t i = 0; i < 24; ++i) {
        chunk_range range{.prompt = c * 10 + i % 3,
                          .last = static_cast<uint32_t>(1 + i % 3),
                          .request = std::to_string(c * 1000 + i)};
        if (i < 3)
          client.store(range);
        auto found = client.exact_prefix(range);
        wrong += found < -2 ? 1 : 0;
        read += found > 0 ? 1 : 0;
      }
    });
  for (auto& thread : readers)
    thread.join();
  CHECK(wrong == 0);
  CHECK(read >= 80);
  served.wait_for_rest();
}

TEST_CASE("pings and lookups overtake large inline stores") {
  mp_daemon served{{"--pool-size", "192MiB", "--eviction", "lru"}};
  mp_client client{served.mp_port()};
  REQUIRE(client.enroll(1, large_layout(1), "m", 1, false));
  bool overtook = false;
  // One thread for all would answer in the order in which it was asked, in every round. On a busy
  // machine the last copy may be done before the ping is even read: hence the rounds.
  for (uint64_t round = 0; round < 10 && !overtook; ++round) {
    std::vector<chunk_range> ranges;
    for (uint64_t i = 0; i < 8; ++i)
      ranges.push_back(
        {.prompt = round * 8 + i, .last = i == 7 ? 64u : 4u, .request = std::to_string(i)});
    // All is made before the first is sent: the last ones go out right behind each other.
    std::vector<std::vector<std::string>> messages;
    auto add = [&](const char* operation, std::vector<json> arguments) {
      messages.push_back({std::to_string(messages.size()), mp_client::packed(operation)});
      for (auto& argument : arguments)
        messages.back().push_back(mp_client::packed(argument));
      return messages.back()[0];
    };
    std::string last_store;
    for (auto& range : ranges) {
      auto data = client.inline_data(range);
      last_store = add("commit_store", {mp_client::key_of(range, true), client.instance_id,
                                        json::binary({data.begin(), data.end()})});
    }
    auto ping = add("ping", {client.instance_id});
    auto lookup = add(
      "lookup", {mp_client::key_of({.prompt = 9999, .last = 1, .request = "look"}, false), 1});
    for (auto& message : messages)
      client.send_in_place(message);
    std::vector<std::string> order;
    for (size_t i = 0; i < messages.size(); ++i) {
      auto frames = client.receive();
      REQUIRE_FALSE(frames.empty());
      order.push_back(frames[0]);
    }
    auto place_of = [&](const std::string& uid) {
      return std::find(order.begin(), order.end(), uid) - order.begin();
    };
    overtook = place_of(ping) < place_of(last_store) && place_of(lookup) < place_of(last_store);
    for (auto& range : ranges)
      CHECK(client.exact_prefix(range) == static_cast<int>(range.last));
  }
  CHECK(overtook);
  served.wait_for_rest();
}
