#include "support/embedded_client.hpp"

using namespace kvasir;
using namespace kvasir::test;

namespace {

bool says(const caf::error& why, const std::string& text) {
  if (to_string(why.context()).find(text) != std::string::npos)
    return true;
  MESSAGE(to_string(why));
  return false;
}

caf::error refusal_of(const engine_options& options) {
  auto opened = engine_client::open(options);
  REQUIRE_FALSE(opened);
  return opened.error();
}

} // namespace

TEST_CASE_FIXTURE(embedded_client,
                  "tensors that are not chunks are refused with what is wrong") {
  auto prompt = prompt_of(0, 8);
  auto refuse = [&](const at::Tensor& second) {
    auto stored = error_of(client->store(prompt, {chunk(0), second}));
    auto loaded = error_of(client->load(prompt, {chunk(0), second}));
    CHECK(to_string(stored) == to_string(loaded));
    return stored;
  };
  auto why = refuse(at::zeros({2, 2, 4, 8}, at::kDouble));
  CHECK(why == errc::layout_mismatch);
  CHECK(says(why, "chunk 1 is of Double, not Float"));
  why = refuse(at::zeros({2, 2, 8, 4}, at::kFloat));
  CHECK(why == errc::layout_mismatch);
  CHECK(says(why, "is of shape [2, 2, 8, 4], not [2, 2, 4, 8]"));
  why = refuse(at::zeros({128}, at::kFloat));
  CHECK(why == errc::layout_mismatch);
  why = refuse(at::zeros({2, 2, 8, 4}, at::kFloat).transpose(2, 3));
  CHECK(why == errc::invalid_argument);
  CHECK(says(why, "is not contiguous"));
  why = refuse(at::Tensor{});
  CHECK(why == errc::invalid_argument);
  CHECK(says(why, "is not defined"));
  why
    = refuse(at::empty({2, 2, 4, 8}, at::TensorOptions().dtype(at::kFloat).device(at::kMeta)));
  CHECK(why == errc::invalid_argument);
  CHECK(says(why, "is on meta, not in the CPU's memory"));
  CHECK(leases() == 0);
  CHECK(value_of(client->lookup(prompt)).chunks() == 0);
}

TEST_CASE_FIXTURE(embedded_client, "more chunks than the prompt has are refused") {
  auto prompt = prompt_of(0, 11);
  CHECK(says(error_of(client->store(prompt, chunks(3))),
             "chunks 0 to 3 of a prompt of 11 tokens, which has 2 full chunks of 4"));
  CHECK(error_of(client->store(prompt, chunks(1), 2)) == errc::invalid_argument);
  CHECK(error_of(client->load(prompt, room(1), SIZE_MAX)) == errc::invalid_argument);
  CHECK(error_of(client->begin_store(prompt, 1, 2)) == errc::invalid_argument);
  CHECK(value_of(client->store(prompt, {}, 2)).stored == 0);
  CHECK(value_of(client->load(prompt, {}, 2)).chunks == 0);
  CHECK(value_of(client->lookup(prompt_of(0, 3))).chunks() == 0);
  CHECK(value_of(client->lookup(prompt_of(0, 0))).chunks() == 0);
}

TEST_CASE_FIXTURE(embedded_client, "prompts and prefixes of another client are refused") {
  embedded_client other;
  auto theirs = other.prompt_of(0, 4);
  other.store(theirs, 1);
  CHECK(error_of(client->lookup(theirs)) == errc::invalid_argument);
  CHECK(error_of(client->view(theirs)) == errc::invalid_argument);
  CHECK(error_of(client->store(theirs, chunks(1))) == errc::invalid_argument);
  auto prefix = value_of(other.client->lookup(theirs));
  CHECK(error_of(client->load(prefix, room(1))) == errc::invalid_argument);
  CHECK(error_of(client->load_layer(prefix, 0, {at::zeros({2, 4, 8})}))
        == errc::invalid_argument);
}

TEST_CASE_FIXTURE(embedded_client, "a deadline is more than nothing and at most an hour") {
  auto prompt = prompt_of(0, 4);
  for (auto deadline : {0ms, -1ms, 3'600'001ms}) {
    auto why = error_of(client->lookup(prompt, {deadline, {}}));
    CHECK(why == errc::invalid_argument);
    CHECK(says(why, "a deadline of " + std::to_string(deadline.count())));
  }
  CHECK(value_of(client->lookup(prompt, {1h, {}})).chunks() == 0);
}

TEST_CASE("options that cannot be served are refused") {
  auto options = small_options();
  SUBCASE("no model") {
    options.model.clear();
    CHECK(says(refusal_of(options), "0 bytes, not 1 to 1024"));
  }
  SUBCASE("a rank outside of the world") {
    options.rank = 1;
    CHECK(says(refusal_of(options), "rank 1 in a world of 1"));
  }
  SUBCASE("a world that is too large") {
    options.world_size = 256;
    CHECK(says(refusal_of(options), "world_size is 256"));
  }
  SUBCASE("a layout with a count of 0") {
    options.layout.hidden = 0;
    CHECK(says(refusal_of(options), "hidden_dim_size is 0"));
  }
  SUBCASE("chunks that the pool can hardly hold") {
    options.pool_bytes = 1 << 20;
    options.layout.hidden = 8192;
    auto why = refusal_of(options);
    CHECK(why == errc::too_large);
    CHECK(says(why, "needs a pool of four times that"));
  }
  SUBCASE("a pool that the machine has no memory for") {
    options.pool_bytes = 1ull << 60;
    CHECK(refusal_of(options) == errc::io_error);
  }
  SUBCASE("an unknown eviction policy") {
    options.eviction = "random";
    CHECK(refusal_of(options) == errc::invalid_argument);
  }
  SUBCASE("no copying thread") {
    options.copy_threads = 0;
    CHECK(refusal_of(options) == errc::invalid_argument);
  }
  SUBCASE("no call may wait") {
    options.max_pending = 0;
    CHECK(refusal_of(options) == errc::invalid_argument);
  }
}

TEST_CASE_FIXTURE(embedded_client,
                  "chunks without room are no error, and the prefix comes first") {
  // Three quarters of the pool may be staged: hold that with an open store.
  const auto pool_chunks = client->options().pool_bytes / 4096;
  const auto limit = pool_chunks / 4 * 3;
  auto big = prompt_of(0, 4 * pool_chunks);
  auto open = value_of(client->begin_store(big, 0, limit - 1));
  auto prompt = prompt_of(1'000'000, 12);
  auto stored = value_of(client->store(prompt, chunks(3)));
  CHECK(stored.stored == 1);
  CHECK(stored.resident == 1);
  CHECK(value_of(client->lookup(prompt)).chunks() == 1);
  open = layer_store{};
  CHECK(value_of(client->store(prompt, chunks(3))).resident == 3);
}

TEST_CASE_FIXTURE(embedded_client, "a lookup that may hold no more finds a shorter prefix") {
  const auto pool_chunks = client->options().pool_bytes / 4096;
  const auto limit = pool_chunks / 4 * 3;
  auto prompt = prompt_of(0, 4 * (limit + 10));
  store(prompt, limit);
  CHECK(value_of(client->store(prompt, chunks(10), limit)).stored == 10);
  auto held = value_of(client->lookup(prompt));
  CHECK(held.chunks() == limit);
  CHECK(value_of(client->status()).prefixes_cut == 1);
  auto into = room(limit + 10);
  CHECK(value_of(client->load(prompt, into)).chunks == limit);
  held.release();
  CHECK(held.chunks() == 0);
  CHECK(leases() == 0);
}
