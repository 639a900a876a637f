// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/socket.hpp"
#include "messages/lm_frame.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::test {

using bytes = std::vector<std::byte>;

inline bytes to_bytes(std::string_view text) {
  auto begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// Bytes that differ by seed and position.
inline bytes pattern(size_t size, uint64_t seed) {
  bytes result(size);
  auto x = seed * 0x9e3779b97f4a7c15ull + 1;
  for (auto& b : result) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    b = static_cast<std::byte>(x >> 56);
  }
  return result;
}

/// The nine integers of a request header and a key, whatever they are.
struct raw_header {
  int32_t command = 5;
  int32_t length = 0;
  int32_t format = 1;
  int32_t dtype = 2;
  int32_t location = 0;
  std::array<int32_t, 4> shape{};
  std::string key = "m@1@0@1@half";

  bytes encode() const {
    bytes result(lm::client_header_size, std::byte{' '});
    std::array<int32_t, 9> fields{command,  length,   format,   dtype,   location,
                                  shape[0], shape[1], shape[2], shape[3]};
    std::memcpy(result.data(), fields.data(), sizeof(fields));
    std::memcpy(result.data() + sizeof(fields), key.data(), std::min<size_t>(key.size(), 150));
    return result;
  }
};

/// A raw lm:// client. Every wait ends after `timeout_ms` and fails the test.
class lm_wire {
public:
  explicit lm_wire(uint16_t port, int timeout_ms = 20'000) {
    auto connected = connect_to("127.0.0.1", port, timeout_ms);
    REQUIRE(connected);
    socket_ = std::move(*connected);
  }

  int fd() const { return socket_.fd(); }

  void send(std::span<const std::byte> data) {
    while (!data.empty()) {
      auto sent = ::send(fd(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR)
        continue;
      REQUIRE(sent > 0);
      data = data.subspan(static_cast<size_t>(sent));
    }
  }

  /// Exactly `size` bytes, or fewer if the server closed.
  bytes receive(size_t size) {
    bytes result(size);
    size_t got = 0;
    while (got < size) {
      auto count = ::recv(fd(), result.data() + got, size - got, 0);
      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0 && errno == ECONNRESET)
        break;
      REQUIRE_MESSAGE(count >= 0, "no answer in time");
      if (count == 0)
        break;
      got += static_cast<size_t>(count);
    }
    result.resize(got);
    return result;
  }

  bool closed_by_server() { return receive(1).empty(); }

  lm::server_header receive_header() {
    auto raw = receive(lm::server_header_size);
    REQUIRE(raw.size() == lm::server_header_size);
    auto header = lm::parse_server_header(
      std::span<const std::byte, lm::server_header_size>{raw.data(), raw.size()});
    REQUIRE(header);
    return *header;
  }

  /// Opaque bytes: format BINARY_BUFFER, shape [size,0,0,0].
  void send_put(const std::string& key, std::span<const std::byte> value) {
    raw_header header{1, static_cast<int32_t>(value.size()), 5, 0, 0, {}, key};
    header.shape[0] = header.length;
    auto frame = header.encode();
    frame.insert(frame.end(), value.begin(), value.end());
    send(frame);
  }

  bool exist(const std::string& key) {
    send(raw_header{3, 0, 1, 2, 0, {}, key}.encode());
    return receive_header().code == lm::return_code::success;
  }

  /// PUT and the EXIST that acknowledges it.
  bool put(const std::string& key, std::span<const std::byte> value) {
    send_put(key, value);
    return exist(key);
  }

  std::optional<bytes> get(const std::string& key) {
    send(raw_header{2, 0, 1, 2, 0, {}, key}.encode());
    auto header = receive_header();
    if (header.code != lm::return_code::success)
      return std::nullopt;
    auto value = receive(static_cast<size_t>(header.length));
    REQUIRE(value.size() == static_cast<size_t>(header.length));
    return value;
  }

  bool healthy() {
    send(raw_header{}.encode());
    return receive_header().code == lm::return_code::success;
  }

  void finish_sending() { shutdown(fd(), SHUT_WR); }

  /// Closes with a reset instead of an orderly end.
  void reset() {
    linger hard{1, 0};
    setsockopt(fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    socket_ = socket_handle{};
  }

  void close() { socket_ = socket_handle{}; }

private:
  socket_handle socket_;
};

} // namespace kvasir::test
