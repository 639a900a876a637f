#include "support/embedded_client.hpp"

#include <thread>

using namespace kvasir;
using namespace kvasir::test;

namespace {

/// [2, 4, 8]: one layer of a chunk; the K plane is `number`, the V plane `number` + 0.5.
at::Tensor layer_of(float number) {
  auto result = at::empty({2, 4, 8}, at::kFloat);
  result[0].fill_(number);
  result[1].fill_(number + 0.5F);
  return result;
}

tensors layers_of(size_t chunks, size_t layer) {
  tensors result;
  for (size_t i = 0; i < chunks; ++i)
    result.push_back(layer_of(static_cast<float>(10 * i + layer)));
  return result;
}

} // namespace

TEST_CASE("layers may come in any order and are one chunk in the end") {
  auto options = small_options();
  SUBCASE("copied by the caller") {}
  SUBCASE("copied by a copying thread") {
    options.max_inline_copy_bytes = 0;
  }
  embedded_client fixture{options};
  auto& client = *fixture.client;
  auto prompt = fixture.prompt_of(0, 12);
  auto open = value_of(client.begin_store(prompt, 0, 3));
  auto second = open.put(1, layers_of(3, 1));
  auto first = open.put(0, layers_of(3, 0));
  CHECK(value_of(client.lookup(prompt)).chunks() == 0);
  auto stored = value_of(std::move(open).commit());
  CHECK(stored.stored == 3);
  CHECK(await(std::move(first)));
  CHECK(await(std::move(second)));

  auto into = fixture.room(3);
  CHECK(value_of(client.load(prompt, into)).chunks == 3);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t layer = 0; layer < 2; ++layer) {
      const auto number = static_cast<float>(10 * i + layer);
      CHECK(is_all(into[static_cast<size_t>(i)][0][layer], number));
      CHECK(is_all(into[static_cast<size_t>(i)][1][layer], number + 0.5F));
    }

  auto prefix = value_of(client.lookup(prompt));
  for (size_t layer = 0; layer < 2; ++layer) {
    tensors out{at::zeros({2, 4, 8}), at::zeros({2, 4, 8}), at::zeros({2, 4, 8})};
    CHECK(await(client.load_layer(prefix, layer, out)));
    for (size_t i = 0; i < 3; ++i)
      CHECK(at::equal(out[i], layer_of(static_cast<float>(10 * i + layer))));
  }
}

TEST_CASE("a single plane has layers of two dimensions") {
  auto options = small_options();
  options.layout.single_plane = true;
  embedded_client fixture{options};
  auto& client = *fixture.client;
  auto prompt = fixture.prompt_of(0, 4);
  auto open = value_of(client.begin_store(prompt, 0, 1));
  CHECK(await(open.put(0, {at::full({4, 8}, 1.0, at::kFloat)})));
  CHECK(await(open.put(1, {at::full({4, 8}, 2.0, at::kFloat)})));
  CHECK(value_of(std::move(open).commit()).stored == 1);
  auto views = value_of(client.view(prompt));
  REQUIRE(views.size() == 1);
  CHECK(views[0].dim() == 3);
  CHECK(is_all(views[0][0], 1));
  CHECK(is_all(views[0][1], 2));
}

TEST_CASE_FIXTURE(embedded_client, "without all layers nothing is published") {
  auto prompt = prompt_of(0, 4);
  auto open = value_of(client->begin_store(prompt, 0, 1));
  CHECK(await(open.put(1, layers_of(1, 1))));
  SUBCASE("at the commit") {
    auto why = error_of(std::move(open).commit());
    CHECK(why == errc::invalid_argument);
    CHECK(to_string(why.context()).find("1 of 2 layers are missing, the first is 0")
          != std::string::npos);
    CHECK_FALSE(open);
    CHECK(error_of(open.put(0, layers_of(1, 0))) == errc::not_reserved);
    CHECK(error_of(std::move(open).commit()) == errc::not_reserved);
  }
  SUBCASE("without a commit") {
    CHECK(leases() == 1);
    open = layer_store{};
  }
  CHECK(leases() == 0);
  CHECK(value_of(client->lookup(prompt)).chunks() == 0);
  CHECK(value_of(client->store(prompt, chunks(1))).stored == 1);
}

TEST_CASE_FIXTURE(embedded_client, "wrong layers are refused") {
  auto prompt = prompt_of(0, 8);
  auto open = value_of(client->begin_store(prompt, 0, 2));
  CHECK(error_of(open.put(2, layers_of(2, 0))) == errc::invalid_argument);
  CHECK(error_of(open.put(0, layers_of(1, 0))) == errc::invalid_argument);
  CHECK(error_of(open.put(0, chunks(2))) == errc::layout_mismatch);
  CHECK(await(open.put(0, layers_of(2, 0))));
  CHECK(error_of(open.put(0, layers_of(2, 0))) == errc::invalid_argument);
  CHECK(await(open.put(1, layers_of(2, 1))));
  CHECK(value_of(std::move(open).commit()).stored == 2);
  auto prefix = value_of(client->lookup(prompt));
  CHECK(error_of(client->load_layer(prefix, 2, layers_of(2, 0))) == errc::invalid_argument);
  CHECK(error_of(client->load_layer(prefix, 0, layers_of(1, 0))) == errc::invalid_argument);
  CHECK(error_of(client->load_layer(prefix, 0, chunks(2))) == errc::layout_mismatch);
}

TEST_CASE_FIXTURE(embedded_client, "layers of resident chunks are passed over") {
  auto prompt = prompt_of(0, 8);
  store(prompt, 1, 7);
  auto open = value_of(client->begin_store(prompt, 0, 2));
  CHECK(await(open.put(0, layers_of(2, 0))));
  CHECK(await(open.put(1, layers_of(2, 1))));
  auto stored = value_of(std::move(open).commit());
  CHECK(stored.stored == 1);
  CHECK(stored.resident == 2);
  CHECK(is_all(value_of(client->view(prompt))[0], 7));
}

TEST_CASE("threads put layers side by side") {
  auto options = small_options();
  options.layout.layers = 16;
  options.max_inline_copy_bytes = 0;
  embedded_client fixture{options};
  auto prompt = fixture.prompt_of(0, 8);
  auto open = value_of(fixture.client->begin_store(prompt, 0, 2));
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (auto layer = t; layer < 16; layer += 4)
          open.put(layer, layers_of(2, layer)).then([](caf::expected<void> got) {
            CHECK(got);
          });
      });
  }
  CHECK(value_of(std::move(open).commit()).stored == 2);
  auto views = value_of(fixture.client->view(prompt));
  for (int64_t layer = 0; layer < 16; ++layer)
    CHECK(is_all(views[1][0][layer], static_cast<float>(10 + layer)));
}
