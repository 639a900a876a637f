// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_client.hpp"
#include "support/one_shot.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <chrono>
#include <coroutine>
#include <exception>
#include <future>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace kvasir::test {

using namespace std::chrono_literals;
using tensors = std::vector<at::Tensor>;

/// Waits with a limit.
template <class T>
T await(std::future<T>& what) {
  REQUIRE(what.wait_for(patience) == std::future_status::ready);
  return what.get();
}

template <class T>
caf::expected<T> await(call<T> what) {
  auto later = std::move(what).future();
  return await(later);
}

/// The value of a call that must succeed.
template <class T>
T value_of(call<T> what) {
  auto got = await(std::move(what));
  if (!got)
    FAIL(to_string(got.error()));
  return std::move(*got);
}

template <class T>
caf::error error_of(call<T> what) {
  auto got = await(std::move(what));
  REQUIRE_FALSE(got);
  return got.error();
}

/// A coroutine that nobody waits for.
struct fire_and_forget {
  struct promise_type {
    fire_and_forget get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

/// 4 tokens per chunk, which is float32 [2, 2, 4, 8]: 512 bytes.
inline engine_options small_options() {
  engine_options result;
  result.model = "m";
  result.layout = {tensor_dtype::float32, false, 2, 4, 8, 4};
  result.pool_bytes = 4 << 20;
  return result;
}

/// `first`, `first + 1`, ...
inline std::vector<uint32_t> tokens_from(uint32_t first, size_t count) {
  std::vector<uint32_t> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

/// A client, and chunks for it whose elements all have one number.
class embedded_client {
public:
  explicit embedded_client(const engine_options& options = small_options()) {
    auto opened = engine_client::open(options);
    if (!opened)
      FAIL(to_string(opened.error()));
    client = std::move(*opened);
  }

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> result;
    for (auto size : client->options().layout.shape().dims())
      result.push_back(static_cast<int64_t>(size));
    return result;
  }

  at::Tensor chunk(float number) const { return at::full(sizes(), number, at::kFloat); }

  tensors chunks(size_t count, float first = 0) const {
    tensors result;
    for (size_t i = 0; i < count; ++i)
      result.push_back(chunk(first + static_cast<float>(i)));
    return result;
  }

  tensors room(size_t count) const {
    tensors result;
    for (size_t i = 0; i < count; ++i)
      result.push_back(at::full(sizes(), -1.0, at::kFloat));
    return result;
  }

  void store(const prompt& what, size_t count, float first = 0) {
    REQUIRE(value_of(client->store(what, chunks(count, first))).resident == count);
  }

  prompt prompt_of(uint32_t first, size_t count) const {
    return client->make_prompt(tokens_from(first, count));
  }

  /// What is reserved or held now.
  uint64_t leases() {
    auto status = value_of(client->status());
    return status.read_leases + status.write_leases;
  }

  std::unique_ptr<engine_client> client;
};

/// Whether all elements are `number`.
inline bool is_all(const at::Tensor& tensor, float number) {
  return at::equal(tensor, at::full(tensor.sizes(), number, at::kFloat));
}

} // namespace kvasir::test
