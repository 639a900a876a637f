#include "actors/embedding/engine_client.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <kvasir/kvasir.h> // That C++ can read it, too.

#include <cstdio>
#include <vector>

int main() {
  kvasir::engine_options options;
  options.model = "m";
  options.layout = {kvasir::tensor_dtype::float32, false, 2, 4, 8, 4};
  options.pool_bytes = 4 << 20;
  auto client = kvasir::engine_client::open(options);
  if (!client) {
    std::fprintf(stderr, "%s\n", to_string(client.error()).c_str());
    return 1;
  }
  const std::vector<uint32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<at::Tensor> kv{at::full({2, 2, 4, 8}, 1.0F), at::full({2, 2, 4, 8}, 2.0F)};
  auto stored = (*client)->store(tokens, kv).get();
  auto views = (*client)->view(tokens).get();
  if (!stored || stored->resident != 2 || !views || views->size() != 2)
    return 1;
  client->reset();
  return at::equal((*views)[1], kv[1]) ? 0 : 1;
}
