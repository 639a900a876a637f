#include "support/embedded_client.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <thread>

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// Copies always go to the one copying thread, which the test can keep busy.
engine_options one_copy_thread() {
  auto options = small_options();
  options.copy_threads = 1;
  options.max_inline_copy_bytes = 0;
  return options;
}

/// A client whose copying thread is held up in the end of a store.
class busy_client : public embedded_client {
public:
  explicit busy_client(const engine_options& options = one_copy_thread())
    : embedded_client(options) {
    store(stored, 2);
    // Its storage is let go of by the copying thread when the copy is done.
    auto blocker = at::from_blob(
      memory.data(), sizes(),
      [this](void*) {
        blocked.raise();
        go_on.wait();
        returned.raise();
      },
      at::kFloat);
    tensors kv;
    kv.push_back(std::move(blocker));
    blocking.emplace(client->store(prompt_of(9000, 4), std::move(kv)));
    REQUIRE(blocked.wait());
  }
  ~busy_client() {
    go_on.raise();
    returned.wait(); // Until then its thread uses what goes now.
  }

  std::vector<float> memory = std::vector<float>(128);
  one_shot blocked;
  one_shot go_on;
  one_shot returned;
  prompt stored = prompt_of(0, 8);
  std::optional<call<store_result>> blocking;
};

} // namespace

// -- holds ------------------------------------------------------------------------------

TEST_CASE_FIXTURE(embedded_client, "a chunk is held for as long as its tensor lives") {
  auto prompt = prompt_of(0, 12);
  store(prompt, 3);
  auto views = value_of(client->view(prompt));
  REQUIRE(views.size() == 3);
  for (size_t i = 0; i < 3; ++i)
    CHECK(is_all(views[i], static_cast<float>(i)));
  CHECK(leases() == 3);
  views.erase(views.begin());
  CHECK(leases() == 2);
  auto slice = views[1].select(0, 1);
  views.clear();
  CHECK(leases() == 1);
  CHECK(is_all(slice, 2));
  slice.reset();
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(embedded_client, "a view is the slot itself, not a copy") {
  auto prompt = prompt_of(0, 4);
  store(prompt, 1);
  auto first = value_of(client->view(prompt));
  auto second = value_of(client->view(prompt));
  CHECK(first[0].const_data_ptr() == second[0].const_data_ptr());
  CHECK(first[0].is_contiguous());
  CHECK((first[0].const_data_ptr() == second[0].const_data_ptr()));
}

TEST_CASE_FIXTURE(embedded_client,
                  "what a tensor shows is not evicted, however much is stored") {
  auto prompt = prompt_of(0, 8);
  store(prompt, 2, 5);
  auto prefix = value_of(client->lookup(prompt));
  auto views = prefix.view();
  prefix.release();
  views.pop_back();
  const auto pool_chunks = static_cast<uint32_t>(client->options().pool_bytes / 4096);
  for (uint32_t i = 1; i < 2 * pool_chunks; ++i)
    store(prompt_of(100 * i, 4), 1, 1000);
  CHECK(value_of(client->status()).evicted_objects > 0);
  CHECK(is_all(views[0], 5));
}

TEST_CASE_FIXTURE(embedded_client, "tensors and prefixes outlive their client") {
  auto prompt = prompt_of(0, 8);
  store(prompt, 2, 3);
  auto prefix = value_of(client->lookup(prompt));
  auto views = value_of(client->view(prompt));
  auto open = value_of(client->begin_store(prompt_of(100, 4), 0, 1));
  client.reset();
  CHECK(is_all(views[0], 3));
  auto late = prefix.view();
  views.clear();
  prefix.release();
  CHECK(is_all(late[1], 4));
  CHECK(error_of(open.put(0, {at::zeros({2, 4, 8})})) == errc::cancelled);
  CHECK(error_of(std::move(open).commit()) == errc::cancelled);
}

TEST_CASE_FIXTURE(embedded_client, "after close every call fails at once") {
  auto prompt = prompt_of(0, 4);
  store(prompt, 1);
  client->close();
  client->close();
  auto why = error_of(client->lookup(prompt));
  CHECK(why == errc::cancelled);
  CHECK(to_string(why.context()).find("the client is closed") != std::string::npos);
  CHECK(error_of(client->store(prompt, chunks(1))) == errc::cancelled);
  CHECK(error_of(client->load(prompt, room(1))) == errc::cancelled);
  CHECK(error_of(client->view(prompt)) == errc::cancelled);
  CHECK(error_of(client->status()) == errc::cancelled);
}

// -- ends of calls ----------------------------------------------------------------------

TEST_CASE_FIXTURE(busy_client,
                  "a call whose deadline passes ends, and gives back what it had") {
  auto into = room(2);
  auto began = std::chrono::steady_clock::now();
  auto loading = client->load(stored, into, 0, {20ms, {}});
  auto storing = client->store(prompt_of(100, 8), chunks(2), 0, {20ms, {}});
  CHECK(error_of(std::move(loading)) == errc::timed_out);
  CHECK(error_of(std::move(storing)) == errc::timed_out);
  CHECK(std::chrono::steady_clock::now() - began >= 20ms);
  CHECK(leases() == 0);
  go_on.raise();
  CHECK(value_of(std::move(*blocking)).stored == 1);
  CHECK(is_all(into[0], -1));
  CHECK(value_of(client->lookup(prompt_of(100, 8))).chunks() == 0);
}

TEST_CASE_FIXTURE(busy_client,
                  "a call that is asked to stop ends, and gives back what it had") {
  std::stop_source source;
  auto into = room(2);
  auto loading = client->load(stored, into, 0, {5s, source.get_token()});
  auto storing = client->store(prompt_of(100, 8), chunks(2), 0, {5s, source.get_token()});
  auto other = client->load(stored, room(2));
  CHECK_FALSE(loading.ready());
  source.request_stop();
  CHECK(error_of(std::move(loading)) == errc::cancelled);
  CHECK(error_of(std::move(storing)) == errc::cancelled);
  CHECK(error_of(client->lookup(stored, {5s, source.get_token()})) == errc::cancelled);
  go_on.raise();
  CHECK(value_of(std::move(other)).chunks == 2);
  CHECK(is_all(into[0], -1));
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(busy_client, "a commit waits for its puts, and its deadline ends the wait") {
  auto prompt = prompt_of(100, 4);
  auto open = value_of(client->begin_store(prompt, 0, 1));
  auto first = open.put(0, {at::zeros({2, 4, 8})});
  auto second = open.put(1, {at::zeros({2, 4, 8})});
  SUBCASE("in time") {
    auto commit = std::move(open).commit();
    CHECK_FALSE(commit.ready());
    go_on.raise();
    CHECK(value_of(std::move(commit)).stored == 1);
    CHECK(await(std::move(first)));
  }
  SUBCASE("too late") {
    CHECK(error_of(std::move(open).commit({20ms, {}})) == errc::timed_out);
    go_on.raise();
    CHECK(await(std::move(first)));
    CHECK(await(std::move(second)));
    CHECK(value_of(client->lookup(prompt)).chunks() == 0);
  }
  value_of(client->store(prompt_of(200, 4), chunks(1))); // After all work before it.
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(busy_client, "a put that failed fails the commit that waits for it") {
  std::stop_source source;
  auto open = value_of(client->begin_store(prompt_of(100, 4), 0, 1));
  auto first = open.put(0, {at::zeros({2, 4, 8})}, {5s, source.get_token()});
  auto second = open.put(1, {at::zeros({2, 4, 8})});
  auto commit = std::move(open).commit();
  source.request_stop();
  CHECK(error_of(std::move(first)) == errc::cancelled);
  go_on.raise();
  CHECK(error_of(std::move(commit)) == errc::cancelled);
  CHECK(await(std::move(second)));
  CHECK(value_of(client->lookup(prompt_of(100, 4))).chunks() == 0);
  CHECK(leases() == 0);
}

TEST_CASE("more waiting calls than allowed are refused") {
  auto options = one_copy_thread();
  options.max_pending = 2;
  busy_client fixture{options};
  auto& client = *fixture.client;
  auto first = client.load(fixture.stored, fixture.room(1));
  auto second = client.load(fixture.stored, fixture.room(1));
  CHECK(error_of(client.load(fixture.stored, fixture.room(1))) == errc::busy);
  CHECK(error_of(client.store(fixture.prompt_of(100, 4), fixture.chunks(1))) == errc::busy);
  CHECK(value_of(client.lookup(fixture.stored)).chunks() == 2);
  fixture.go_on.raise();
  CHECK(value_of(std::move(first)).chunks == 1);
  CHECK(value_of(std::move(second)).chunks == 1);
  CHECK(value_of(client.load(fixture.stored, fixture.room(1))).chunks == 1);
  CHECK(fixture.leases() == 0);
}

// -- ends of clients --------------------------------------------------------------------

TEST_CASE_FIXTURE(busy_client, "a client may go while calls are under way: all of them end") {
  std::vector<std::future<caf::expected<load_result>>> loads;
  std::vector<std::future<caf::expected<store_result>>> stores;
  for (uint32_t i = 0; i < 10; ++i) {
    loads.push_back(client->load(stored, room(2)).future());
    stores.push_back(client->store(prompt_of(100 * (i + 1), 4), chunks(1)).future());
  }
  std::jthread closing{[this] {
    client.reset();
  }};
  for (auto& load : loads)
    CHECK(await(load).error() == errc::cancelled);
  for (auto& store : stores)
    CHECK(await(store).error() == errc::cancelled);
  go_on.raise();
  closing.join();
  CHECK(std::move(*blocking).future().wait_for(0s) == std::future_status::ready);
}

TEST_CASE_FIXTURE(busy_client, "a client may go in one of its own continuations") {
  one_shot gone;
  client->load(stored, room(2)).then([&](caf::expected<load_result> got) {
    CHECK(got);
    client.reset();
    gone.raise();
  });
  auto after = client->load(stored, room(2)).future();
  go_on.raise();
  REQUIRE(gone.wait());
  auto got = await(after);
  CHECK((got || got.error() == errc::cancelled));
}

TEST_CASE("calls and the end of their client race, and each call ends once") {
  for (auto round = 0; round < 30; ++round) {
    auto options = small_options();
    options.max_inline_copy_bytes = round % 2 == 0 ? 0 : 1 << 20;
    embedded_client fixture{options};
    auto prompt = fixture.prompt_of(0, 8);
    fixture.store(prompt, 2);
    std::atomic<int> ended{0};
    std::atomic<int> asked{0};
    one_shot many;
    {
      std::vector<std::jthread> threads;
      for (uint32_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t](std::stop_token stop) {
          for (uint32_t i = 0; !stop.stop_requested(); ++i) {
            if (++asked > 30)
              many.raise();
            fixture.client->load(prompt, fixture.room(2)).then([&](auto) { ++ended; });
            ++asked;
            fixture.client
              ->store(fixture.prompt_of(1000 * (t + 1) + 8 * (i % 100), 4), fixture.chunks(1))
              .then([&](auto) { ++ended; });
            auto views = fixture.client->view(prompt).get();
            CHECK((views || views.error() == errc::cancelled));
          }
        });
      REQUIRE(many.wait());
      fixture.client->close();
    }
    CHECK(ended == asked);
  }
}

// -- systems ----------------------------------------------------------------------------

TEST_CASE("a client runs on a system that it is lent, and leaves nothing behind there") {
  caf::actor_system_config config;
  kvasir::configure(config);
  caf::actor_system system{config};
  const auto before = system.registry().running();
  for (auto round = 0; round < 3; ++round) {
    auto opened = engine_client::open(small_options(), system);
    REQUIRE(opened);
    embedded_client fixture;
    fixture.client = std::move(*opened);
    auto prompt = fixture.prompt_of(0, 8);
    fixture.store(prompt, 2);
    CHECK(value_of(fixture.client->lookup(prompt)).chunks() == 2);
    auto views = value_of(fixture.client->view(prompt));
    fixture.client.reset();
    CHECK(is_all(views[1], 1));
  }
  system.registry().await_running_count_equal(before);
}

TEST_CASE("a lent system that was not configured is refused, and told how") {
  caf::actor_system_config config;
  caf::actor_system system{config};
  auto opened = engine_client::open(small_options(), system);
  REQUIRE_FALSE(opened);
  CHECK(opened.error() == errc::invalid_argument);
  CHECK(to_string(opened.error().context()).find("call kvasir::configure(config)")
        != std::string::npos);
}

TEST_CASE("several clients live beside each other in one process") {
  embedded_client first;
  embedded_client second;
  auto prompt = first.prompt_of(0, 4);
  first.store(prompt, 1);
  CHECK(value_of(first.client->lookup(prompt)).chunks() == 1);
  CHECK(value_of(second.client->lookup(tokens_from(0, 4))).chunks() == 0);
}
