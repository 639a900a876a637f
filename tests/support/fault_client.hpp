// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "support/lm_wire.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>

namespace kvasir::test {

// -- values -----------------------------------------------------------------------------

/// Word `index` of the value that belongs to `seed`: a mix of both, so that no two values share
/// a word at the same place.
inline uint64_t value_word(uint64_t seed, uint64_t index) {
  auto x = seed * 0x9e3779b97f4a7c15ull + index;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
  return x ^ (x >> 29);
}

/// Bytes of the value of `seed`, from `first_word` on. A whole value begins at 0.
inline void fill_value(std::span<std::byte> target, uint64_t seed, uint64_t first_word = 0) {
  for (size_t at = 0; at < target.size(); at += sizeof(uint64_t)) {
    auto word = value_word(seed, first_word + at / sizeof(uint64_t));
    std::memcpy(target.data() + at, &word, std::min(sizeof(word), target.size() - at));
  }
}

inline bytes value_of(uint64_t seed, size_t size) {
  bytes result(size);
  fill_value(result, seed);
  return result;
}

/// @returns whether these are the bytes of `seed` from `first_word` on.
inline bool is_value(std::span<const std::byte> found, uint64_t seed, uint64_t first_word = 0) {
  for (size_t at = 0; at < found.size(); at += sizeof(uint64_t)) {
    auto word = value_word(seed, first_word + at / sizeof(uint64_t));
    if (std::memcmp(found.data() + at, &word, std::min(sizeof(word), found.size() - at)) != 0)
      return false;
  }
  return true;
}

/// `stem`@1@0@<number + 1>@half
inline std::string numbered_key(const std::string& stem, uint64_t number) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%llx",
                static_cast<unsigned long long>(number + 1));
  return stem + "@1@0@" + digits.data() + "@half";
}

/// The header of a PUT of opaque bytes.
inline raw_header put_header(const std::string& key, int32_t length) {
  return {1, length, 5, 0, 0, {length, 0, 0, 0}, key};
}

inline raw_header get_header(const std::string& key) {
  return {2, 0, 1, 2, 0, {}, key};
}

inline raw_header exist_header(const std::string& key) {
  return {3, 0, 1, 2, 0, {}, key};
}

// -- seeds ------------------------------------------------------------------------------

/// The generator of one test. Its seed is in the log of every failure; KVASIR_SEED repeats it.
inline std::mt19937_64 seeded(uint64_t& seed) {
  if (auto text = std::getenv("KVASIR_SEED"); text != nullptr)
    seed = std::strtoull(text, nullptr, 0);
  else
    seed = std::random_device{}();
  return std::mt19937_64{seed};
}

inline uint64_t up_to(std::mt19937_64& random, uint64_t last) {
  return random() % (last + 1);
}

// -- clients ----------------------------------------------------------------------------

/// A client for threads and for servers that die: where `lm_wire` fails the test, this says
/// that the connection is lost. Every wait ends after 20 s and counts as lost, too.
class fault_client {
public:
  explicit fault_client(uint16_t port) {
    if (auto connected = connect_to("127.0.0.1", port, 20'000))
      socket_ = std::move(*connected);
  }

  explicit operator bool() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.fd(); }

  bool send(std::span<const std::byte> data) {
    while (socket_ && !data.empty()) {
      auto sent = ::send(fd(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR)
        continue;
      if (sent <= 0)
        return lose();
      data = data.subspan(static_cast<size_t>(sent));
    }
    return static_cast<bool>(socket_);
  }

  /// What the socket takes without waiting. @returns the count of bytes sent.
  size_t send_some(std::span<const std::byte> data) {
    auto sent = ::send(fd(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }

  bool receive(std::span<std::byte> target) {
    while (socket_ && !target.empty()) {
      auto got = ::recv(fd(), target.data(), target.size(), 0);
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        return lose();
      target = target.subspan(static_cast<size_t>(got));
    }
    return static_cast<bool>(socket_);
  }

  std::optional<lm::server_header> receive_header() {
    std::array<std::byte, lm::server_header_size> raw{};
    if (!receive(raw))
      return std::nullopt;
    auto header = lm::parse_server_header(raw);
    return header ? std::optional{*header} : std::nullopt;
  }

  bool send_put(const std::string& key, std::span<const std::byte> value) {
    return send(put_header(key, static_cast<int32_t>(value.size())).encode()) && send(value);
  }

  /// @returns nothing if the connection is lost.
  std::optional<bool> exist(const std::string& key) {
    send(exist_header(key).encode());
    auto header = receive_header();
    if (!header)
      return std::nullopt;
    return header->code == lm::return_code::success;
  }

  enum class found : uint8_t { hit, miss, lost };

  /// On a hit `value` has the bytes.
  found get(const std::string& key, bytes& value) {
    send(get_header(key).encode());
    auto header = receive_header();
    if (!header)
      return found::lost;
    if (header->code != lm::return_code::success)
      return found::miss;
    value.resize(static_cast<size_t>(header->length));
    return receive(value) ? found::hit : found::lost;
  }

  void finish_sending() { shutdown(fd(), SHUT_WR); }

  /// Closes with a reset instead of an orderly end.
  void reset() {
    linger hard{1, 0};
    setsockopt(fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }

  void close() { socket_ = socket_handle{}; }

private:
  bool lose() {
    close();
    return false;
  }

  socket_handle socket_;
};

} // namespace kvasir::test
