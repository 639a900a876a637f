#pragma once

#include "cache_client.hpp"

#include <vector>

namespace kvasir::bench {

/// Speaks lm://. A PUT has no reply in this protocol, so `put` sends PUT and EXIST of the same
/// key and waits for the answer of the EXIST.
class lm_client final : public cache_client {
public:
  lm_client(tcp_socket socket, bool split_sends)
    : socket_(std::move(socket)),
      split_sends_(split_sends) {}

  bool put(const std::string& key, std::span<const char> value) override;
  bool get(const std::string& key, std::span<char> into) override;
  std::size_t exist(std::span<const std::string> keys) override;
  void put_all(std::span<const std::string> keys, std::span<const char> value) override;

private:
  void drop(std::size_t size);

  tcp_socket socket_;
  bool split_sends_;
  std::vector<char> requests_;
  std::vector<char> replies_;
};

} // namespace kvasir::bench
