// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <httplib.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace kvasir {

/// One request and its reply on a non-blocking socket, each with a deadline as a whole, so that
/// a client that sends a byte now and then does not keep a thread.
///
/// Threading: belongs to one thread. Blocking: waits for the client until the deadline.
class http_stream final : public httplib::Stream {
public:
  static constexpr std::chrono::seconds request_limit{2}; ///< From its first byte to its last.
  static constexpr std::chrono::seconds reply_limit{5};

  /// @pre `fd` outlives it
  explicit http_stream(int fd);

  /// The next request on the same connection; its deadline starts.
  void begin_request();

  /// Whether bytes of another request are there already.
  bool has_more() const { return begin_ < end_; }

  bool is_readable() const override;
  bool is_writable() const override;
  int socket() const override { return fd_; }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;

private:
  using clock = std::chrono::steady_clock;

  bool wait(short events, clock::time_point until) const;

  int fd_;
  clock::time_point read_until_;
  std::optional<clock::time_point> write_until_;
  std::array<char, 4096> buffer_{};
  size_t begin_ = 0;
  size_t end_ = 0;
};

} // namespace kvasir
