// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/byte_client.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvasir::test {

/// An engine that joined a node, in bytes. Throws where something must not fail, because it also
/// runs in processes that have no test. Chunks: 4 tokens, float32 [2, 2, 4, 512], 32 KiB, all of
/// whose words follow from the prompt's number and the chunk's.
class byte_engine {
public:
  static constexpr uint32_t chunk_tokens = 4;
  static constexpr size_t chunk_bytes = 32 << 10;

  static engine_options options(const std::string& socket) {
    engine_options result;
    result.model = "m";
    result.layout = {tensor_dtype::float32, false, 2, chunk_tokens, 512, chunk_tokens};
    result.node = socket;
    return result;
  }

  explicit byte_engine(const std::string& socket) : core_(opened(socket)), client_(core_) {}
  ~byte_engine() { client_.close(); }
  byte_engine(const byte_engine&) = delete;
  byte_engine& operator=(const byte_engine&) = delete;

  prompt prompt_of(uint32_t number, size_t chunks) const {
    std::vector<uint32_t> tokens(chunks * chunk_tokens);
    std::iota(tokens.begin(), tokens.end(), number * 100'000);
    return client_.make_prompt(tokens);
  }

  /// @returns the chunks that are resident then.
  size_t store(uint32_t number, size_t chunks) {
    auto data = std::make_shared<std::vector<std::vector<uint32_t>>>();
    store_call::source from;
    for (size_t i = 0; i < chunks; ++i) {
      data->emplace_back(chunk_bytes / sizeof(uint32_t), word_of(number, i));
      from.chunks.push_back(std::as_bytes(std::span{data->back()}));
    }
    from.owner = data;
    return value(client_.store(prompt_of(number, chunks), std::move(from), 0, {})).resident;
  }

  held_prefix lookup(uint32_t number, size_t chunks) {
    return value(client_.lookup(prompt_of(number, chunks), {}));
  }

  /// Whether the first held chunks are those of this prompt, read in place.
  static bool is_exact(const held_prefix& held, uint32_t number) {
    for (size_t i = 0; i < held.chunks(); ++i) {
      auto bytes = held.holds()->bytes(i);
      std::vector<uint32_t> expected(chunk_bytes / sizeof(uint32_t), word_of(number, i));
      if (bytes.size() != chunk_bytes
          || std::memcmp(bytes.data(), expected.data(), chunk_bytes))
        return false;
    }
    return true;
  }

  /// Reserves chunks that are never committed.
  std::shared_ptr<stage_set> stage(uint32_t number, size_t chunks) {
    return value(
      client_.stage_as<std::shared_ptr<stage_set>>(prompt_of(number, chunks), 0, chunks, {}));
  }

  byte_client& client() { return client_; }
  engine_core& core() { return *core_; }

private:
  static uint32_t word_of(uint32_t number, size_t chunk) {
    return number * 1000 + static_cast<uint32_t>(chunk) + 1;
  }

  static std::shared_ptr<engine_core> opened(const std::string& socket) {
    auto result = engine_core::open(options(socket), nullptr);
    if (!result)
      throw std::runtime_error{to_string(result.error())};
    return std::move(*result);
  }

  template <class T>
  static T value(call<T> what) {
    auto got = std::move(what).get();
    if (!got)
      throw std::runtime_error{to_string(got.error())};
    return std::move(*got);
  }

  std::shared_ptr<engine_core> core_;
  byte_client client_;
};

} // namespace kvasir::test
