#include "actors/embedding/engine_client.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

/// Ends with a client, its calls and its tensors in static storage, in either order.

namespace {

using client_pointer = std::unique_ptr<kvasir::engine_client>;

struct leftovers {
  std::vector<at::Tensor> views;
  std::optional<kvasir::held_prefix> prefix;
};

/// What is made first is destroyed last.
client_pointer& first_client() {
  static client_pointer client;
  return client;
}

leftovers& tensors() {
  static leftovers left;
  return left;
}

client_pointer& last_client() {
  static client_pointer client;
  return client;
}

} // namespace

int main(int argc, char** argv) {
  const auto tensors_first = argc > 1 && std::string_view{argv[1]} == "--tensors-first";
  auto& early = first_client();
  auto& left = tensors();
  auto& client = tensors_first ? early : last_client();
  kvasir::engine_options options;
  options.model = "m";
  options.layout = {kvasir::tensor_dtype::float32, false, 2, 4, 8, 4};
  options.pool_bytes = 4 << 20;
  options.max_inline_copy_bytes = 0;
  auto opened = kvasir::engine_client::open(options);
  if (!opened) {
    std::fprintf(stderr, "%s\n", to_string(opened.error()).c_str());
    return 1;
  }
  client = std::move(*opened);
  const std::vector<uint32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8};
  auto prompt = client->make_prompt(tokens);
  const std::vector<at::Tensor> kv{at::full({2, 2, 4, 8}, 1.0F), at::full({2, 2, 4, 8}, 2.0F)};
  if (!client->store(prompt, kv).get())
    return 1;
  auto views = client->view(prompt).get();
  auto prefix = client->lookup(prompt).get();
  if (!views || views->size() != 2 || !prefix)
    return 1;
  left.views = std::move(*views);
  left.prefix.emplace(std::move(*prefix));
  for (auto i = 0; i < 100; ++i)
    client->load(prompt, {at::full({2, 2, 4, 8}, 0.0F)}).then([](const auto&) {});
  return 0;
}
