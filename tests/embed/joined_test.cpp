#include "support/joined_fixture.hpp"

#include <cstring>

using namespace kvasir;
using namespace kvasir::test;

TEST_CASE_FIXTURE(joined_fixture, "what one engine stores another finds, in the same memory") {
  embedded_client writer{options()};
  embedded_client reader{options()};
  auto prompt = writer.prompt_of(0, 12);
  CHECK(value_of(writer.client->store(prompt, writer.chunks(3, 1))).stored == 3);

  auto same = reader.prompt_of(0, 14);
  auto held = value_of(reader.client->lookup(same));
  CHECK(held.chunks() == 3);
  auto room = reader.room(3);
  CHECK(value_of(reader.client->load(held, room)).chunks == 3);
  CHECK(is_all(room[2], 3));

  auto views = held.view();
  REQUIRE(views.size() == 3);
  auto pool = served->pool().data();
  auto offset = static_cast<std::byte*>(views[0].data_ptr()) - static_cast<std::byte*>(nullptr);
  CHECK(offset != 0);
  CHECK(views[0].data_ptr() != static_cast<void*>(pool)); // Another mapping,
  views[0].fill_(7);                                      // of the same memory.
  auto again = value_of(writer.client->view(prompt));
  CHECK(is_all(again[0], 7));
}

TEST_CASE_FIXTURE(joined_fixture, "layers that one engine puts are whole for another") {
  embedded_client writer{options()};
  auto prompt = writer.prompt_of(0, 8);
  auto staged = value_of(writer.client->begin_store(prompt, 0, 2));
  for (size_t layer = 0; layer < 2; ++layer) {
    tensors kv;
    for (size_t i = 0; i < 2; ++i)
      kv.push_back(at::full({2, 4, 8}, static_cast<float>(layer), at::kFloat));
    REQUIRE(await(staged.put(layer, std::move(kv))));
  }
  CHECK(value_of(std::move(staged).commit()).stored == 2);

  embedded_client reader{options()};
  auto held = value_of(reader.client->lookup(reader.prompt_of(0, 8)));
  REQUIRE(held.chunks() == 2);
  tensors layer{at::zeros({2, 4, 8}, at::kFloat), at::zeros({2, 4, 8}, at::kFloat)};
  REQUIRE(await(reader.client->load_layer(held, 1, layer)));
  CHECK(is_all(layer[1], 1));
}

TEST_CASE_FIXTURE(joined_fixture,
                  "an engine that leaves gives back what it reserved and held") {
  {
    embedded_client engine{options()};
    auto prompt = engine.prompt_of(0, 8);
    engine.store(prompt, 2);
    auto held = value_of(engine.client->lookup(prompt));
    auto staged = value_of(engine.client->begin_store(engine.prompt_of(100, 4), 0, 1));
    CHECK(served->status().storage.write_leases == 1);
    CHECK(served->status().join.open_connections == 1);
  }
  wait([&] { return count(join_count::left) == 1; });
  auto status = served->status();
  CHECK(status.storage.write_leases == 0);
  CHECK(status.storage.read_leases == 0);
  CHECK(status.storage.staged_bytes == 0);
  CHECK(status.storage.objects == 2);
  CHECK(status.join.open_connections == 0);
}

TEST_CASE_FIXTURE(joined_fixture,
                  "a tensor keeps its chunk, and the connection, after its client") {
  tensors views;
  {
    embedded_client engine{options()};
    auto prompt = engine.prompt_of(0, 4);
    engine.store(prompt, 1, 5);
    views = value_of(engine.client->view(prompt));
  }
  REQUIRE(views.size() == 1);
  CHECK(is_all(views[0], 5));
  CHECK(served->status().join.open_connections == 1);
  views.clear();
  wait([&] { return served->status().join.open_connections == 0; });
  CHECK(served->status().storage.read_leases == 0);
}

TEST_CASE_FIXTURE(joined_fixture, "when the node ends, calls fail and tensors live") {
  embedded_client engine{options()};
  auto prompt = engine.prompt_of(0, 4);
  engine.store(prompt, 1, 5);
  auto views = value_of(engine.client->view(prompt));
  served.reset();
  CHECK(error_of(engine.client->store(engine.prompt_of(50, 4), engine.chunks(1)))
        == errc::peer_unreachable);
  CHECK(error_of(engine.client->lookup(prompt)) == errc::peer_unreachable);
  CHECK(error_of(engine.client->status()) == errc::peer_unreachable);
  CHECK(is_all(views[0], 5));
}

TEST_CASE_FIXTURE(joined_fixture, "a node and an engine that do not fit say why") {
  auto other = options();
  other.layout.slots = other.layout.block_size = 8;
  auto opened = engine_client::open(other);
  REQUIRE_FALSE(opened);
  CHECK(opened.error() == errc::invalid_argument);
  CHECK(to_string(opened.error()).find("have 4 tokens") != std::string::npos);

  auto nowhere = options();
  nowhere.node += ".gone";
  opened = engine_client::open(nowhere);
  REQUIRE_FALSE(opened);
  CHECK(opened.error() == errc::peer_unreachable);

  auto large = options();
  large.layout.hidden = 1 << 20;
  opened = engine_client::open(large);
  REQUIRE_FALSE(opened);
  CHECK(opened.error() == errc::too_large);
}

TEST_CASE_FIXTURE(joined_fixture,
                  "a node's socket goes with it, and a dead one's is replaced") {
  auto path = folder / "engines.sock";
  CHECK(std::filesystem::is_socket(path));
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all)
        == (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  auto taken = unix_listener::open(path);
  REQUIRE_FALSE(taken);
  CHECK(taken.error() == errc::io_error);
  served.reset();
  CHECK_FALSE(std::filesystem::exists(path));
  {
    auto left = unix_listener::open(path); // And not withdrawn: as if its process were killed.
    REQUIRE(left);
  }
  auto replaced = unix_listener::open(path);
  REQUIRE(replaced);
  replaced->withdraw();
  CHECK_FALSE(std::filesystem::exists(path));
}
