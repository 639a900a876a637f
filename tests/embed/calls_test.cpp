#include "support/embedded_client.hpp"

#include <optional>
#include <thread>

using namespace kvasir;
using namespace kvasir::test;

TEST_CASE_FIXTURE(embedded_client, "a lookup finds the longest stored prefix, and no more") {
  auto prompt = prompt_of(0, 15);
  CHECK(prompt.chunk_count() == 3);
  CHECK(value_of(client->lookup(prompt)).chunks() == 0);
  auto stored = value_of(client->store(prompt, chunks(2)));
  CHECK(stored.stored == 2);
  CHECK(stored.resident == 2);
  auto found = value_of(client->lookup(prompt));
  CHECK(found.chunks() == 2);
  CHECK(found.tokens() == 8);
  CHECK(value_of(client->lookup(tokens_from(0, 4))).chunks() == 1);
  CHECK(value_of(client->lookup(tokens_from(1, 4))).chunks() == 0);
}

TEST_CASE_FIXTURE(embedded_client, "a load copies what is there and leaves no hold") {
  auto prompt = prompt_of(0, 12);
  store(prompt, 2);
  auto into = room(3);
  auto loaded = value_of(client->load(prompt, into));
  CHECK(loaded.chunks == 2);
  CHECK(loaded.tokens == 8);
  CHECK(is_all(into[0], 0));
  CHECK(is_all(into[1], 1));
  CHECK(is_all(into[2], -1));
  into = room(2);
  CHECK(value_of(client->load(prompt, into, 1)).chunks == 1);
  CHECK(is_all(into[0], 1));
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(embedded_client, "what is resident is not stored again") {
  auto prompt = prompt_of(0, 12);
  store(prompt, 1, 7);
  auto again = value_of(client->store(prompt, chunks(3)));
  CHECK(again.stored == 2);
  CHECK(again.resident == 3);
  auto into = room(1);
  CHECK(value_of(client->load(prompt, into)).chunks == 1);
  CHECK(is_all(into[0], 7));
  again = value_of(client->store(prompt, chunks(2), 1));
  CHECK(again.stored == 0);
  CHECK(again.resident == 2);
}

TEST_CASE_FIXTURE(embedded_client, "a grown prompt is stored behind what it shares") {
  auto prompt = prompt_of(0, 8);
  store(prompt, 2);
  prompt.extend(tokens_from(0, 16));
  auto stored = value_of(client->store(prompt, chunks(2, 2), 2));
  CHECK(stored.stored == 2);
  CHECK(value_of(client->lookup(prompt)).chunks() == 4);
}

TEST_CASE_FIXTURE(embedded_client, "tenants do not find each other's chunks") {
  auto tokens = tokens_from(0, 4);
  auto ours = client->make_prompt(tokens, "ours");
  REQUIRE(ours);
  store(*ours, 1);
  CHECK(value_of(client->lookup(*ours)).chunks() == 1);
  CHECK(value_of(client->lookup(tokens)).chunks() == 0);
  CHECK(value_of(client->lookup(*client->make_prompt(tokens, "theirs"))).chunks() == 0);
  CHECK(client->make_prompt(tokens, std::string(129, 's')).error() == errc::invalid_argument);
}

TEST_CASE("callback, future and coroutine see the same") {
  auto options = small_options();
  SUBCASE("copied by the caller") {}
  SUBCASE("copied by a copying thread") {
    options.max_inline_copy_bytes = 0;
  }
  embedded_client fixture{options};
  auto& client = *fixture.client;
  auto prompt = fixture.prompt_of(0, 8);

  one_shot stored;
  client.store(prompt, fixture.chunks(2)).then([&](caf::expected<store_result> got) {
    CHECK(got);
    CHECK(got->stored == 2);
    stored.raise();
  });
  REQUIRE(stored.wait());

  auto found = client.lookup(prompt).future();
  CHECK(await(found)->chunks() == 2);

  one_shot ended;
  auto into = fixture.room(2);
  auto session = [&]() -> fire_and_forget {
    {
      auto prefix = co_await client.lookup(prompt);
      CHECK(prefix->chunks() == 2);
      auto loaded = co_await client.load(*prefix, into);
      CHECK(loaded->chunks == 2);
    }
    auto more = co_await client.store(tokens_from(100, 4), fixture.chunks(1, 5));
    CHECK(more->stored == 1);
    auto wrong = co_await client.load(prompt, fixture.room(3));
    CHECK(wrong.error() == errc::invalid_argument);
    ended.raise();
  };
  session();
  REQUIRE(ended.wait());
  CHECK(is_all(into[1], 1));
  CHECK(fixture.leases() == 0);
}

TEST_CASE_FIXTURE(embedded_client, "a call that nobody waits for is carried out") {
  std::vector<float> memory(128, 3);
  one_shot ended; // Then its tensor is let go of.
  {
    tensors kv;
    kv.push_back(at::from_blob(
      memory.data(), sizes(), [&](void*) { ended.raise(); }, at::kFloat));
    auto dropped = client->store(tokens_from(0, 4), std::move(kv));
  }
  REQUIRE(ended.wait());
  auto into = room(1);
  CHECK(value_of(client->load(tokens_from(0, 4), into)).chunks == 1);
  CHECK(is_all(into[0], 3));
}

TEST_CASE("a batch has the outcome of each call, in order") {
  auto options = small_options();
  options.max_inline_copy_bytes = 0;
  embedded_client fixture{options};
  auto& client = *fixture.client;
  std::vector<call<store_result>> stores;
  for (uint32_t i = 0; i < 20; ++i)
    stores.push_back(
      client.store(fixture.prompt_of(100 * i, 4), fixture.chunks(i == 7 ? 2 : 1)));
  auto stored = value_of(all(std::move(stores)));
  REQUIRE(stored.size() == 20);
  for (size_t i = 0; i < 20; ++i)
    CHECK(bool{stored[i]} == (i != 7));
  CHECK(stored[7].error() == errc::invalid_argument);
  std::vector<call<held_prefix>> lookups;
  for (uint32_t i = 0; i < 20; ++i)
    lookups.push_back(client.lookup(fixture.prompt_of(100 * i, 4)));
  auto found = value_of(all(std::move(lookups)));
  for (size_t i = 0; i < 20; ++i)
    CHECK(found[i]->chunks() == (i != 7 ? 1 : 0));
  CHECK(value_of(all(std::vector<call<held_prefix>>{})).empty());
}

TEST_CASE_FIXTURE(embedded_client, "a corrupt chunk is a miss, and then gone") {
  auto prompt = prompt_of(0, 12);
  store(prompt, 3);
  value_of(client->view(prompt))[1].view(-1)[5].fill_(42);
  auto into = room(3);
  auto loaded = value_of(client->load(prompt, into));
  CHECK(loaded.chunks == 1);
  CHECK(loaded.corrupt == 1);
  CHECK(value_of(client->lookup(prompt)).chunks() == 1);
  CHECK(value_of(client->store(prompt, chunks(3))).stored == 1);
  CHECK(value_of(client->load(prompt, into)).chunks == 3);
}

TEST_CASE("without verification a load does not look at checksums") {
  auto options = small_options();
  options.verify_loads = false;
  embedded_client fixture{options};
  auto prompt = fixture.prompt_of(0, 4);
  fixture.store(prompt, 1);
  value_of(fixture.client->view(prompt))[0].fill_(42);
  auto into = fixture.room(1);
  CHECK(value_of(fixture.client->load(prompt, into)).chunks == 1);
  CHECK(is_all(into[0], 42));
}

TEST_CASE_FIXTURE(embedded_client, "when the pool is full, old prompts give way") {
  const auto pool_chunks = static_cast<uint32_t>(client->options().pool_bytes / 4096);
  for (uint32_t i = 0; i < 2 * pool_chunks; ++i)
    store(prompt_of(100 * i, 4), 1, static_cast<float>(i));
  auto status = value_of(client->status());
  CHECK(status.evicted_objects >= pool_chunks);
  CHECK(status.used_bytes <= status.capacity_bytes);
  auto into = room(1);
  auto last = prompt_of(100 * (2 * pool_chunks - 1), 4);
  CHECK(value_of(client->load(last, into)).chunks == 1);
  CHECK(is_all(into[0], static_cast<float>(2 * pool_chunks - 1)));
}

TEST_CASE_FIXTURE(embedded_client, "what is left of a prompt under pressure is its beginning") {
  const auto pool_chunks = static_cast<uint32_t>(client->options().pool_bytes / 4096);
  auto prompt = prompt_of(0, 400);
  for (size_t i = 0; i < 100; i += 5) // In several stores: the parent may be of an earlier one.
    REQUIRE(value_of(client->store(prompt, chunks(5), i)).stored == 5);
  // No lookup meanwhile: what is used stays.
  for (uint32_t i = 1; i < 2 * pool_chunks; ++i) {
    store(prompt_of(1000 * i, 4), 1);
    if (value_of(client->status()).evicted_objects >= 30)
      break;
  }
  const auto left = value_of(client->lookup(prompt)).chunks();
  CHECK(left > 0);
  CHECK(left < 100);
  for (size_t i = left; i < 100; ++i)
    CHECK(value_of(client->load(prompt, room(1), i)).chunks == 0);
}
