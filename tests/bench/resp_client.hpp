#pragma once

#include "cache_client.hpp"

#include <array>
#include <string_view>

namespace kvasir::bench {

/// Speaks Redis' protocol: SET, GET, EXISTS.
class resp_client final : public cache_client {
public:
  explicit resp_client(tcp_socket socket) : socket_(std::move(socket)) {}

  bool put(const std::string& key, std::span<const char> value) override;
  bool get(const std::string& key, std::span<char> into) override;
  std::size_t exist(std::span<const std::string> keys) override;
  void put_all(std::span<const std::string> keys, std::span<const char> value) override;

private:
  /// The next line without its CR LF; valid until the next read.
  std::string_view read_line();

  /// Reads `size` bytes: first what `read_line` left over, then straight into `to`.
  void read_bytes(char* to, std::size_t size);

  /// Reads and drops a bulk string of `size` bytes and its CR LF.
  void drop_bulk(std::size_t size);

  tcp_socket socket_;
  std::array<char, 16384> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::string line_;
  std::string requests_;
};

} // namespace kvasir::bench
