// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/socket.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kvasir {

/// The connections of the HTTP port. One thread accepts and waits for bytes on all of them, two
/// more serve what has a request, one request at a time: a silent client costs a file
/// descriptor for a while, never a thread.
///
///   accepted --first bytes--> (another protocol: logged, closed) | queued --> served
///   served --kept alive--> idle --bytes--> queued
///
/// Threading: construct and destroy from one thread; `wrong_protocol` from any.
class http_listener {
public:
  /// Serves one request. @returns whether the connection can carry another one. Called from two
  /// threads; the socket is non-blocking.
  using serve_handler = std::function<bool(int fd)>;

  static constexpr std::chrono::seconds silence_limit{2}; ///< Before the first byte.
  static constexpr std::chrono::seconds idle_limit{5};    ///< Between requests.
  static constexpr size_t max_connections = 256; ///< Then whoever waited longest is closed.

  /// @param lm_hint says where lm:// clients should go instead.
  http_listener(listening_sockets listening, serve_handler serve, std::string lm_hint);

  /// Ends when the requests under way are answered.
  ~http_listener();
  http_listener(const http_listener&) = delete;
  http_listener& operator=(const http_listener&) = delete;

  uint64_t wrong_protocol() const { return wrong_protocol_.load(std::memory_order_relaxed); }

private:
  using clock = std::chrono::steady_clock;

  struct waiting_connection {
    socket_handle socket;
    clock::time_point deadline;
    bool fresh = true; ///< Nothing received yet.
  };

  void listen();
  int wait_ms() const;
  void accept_from(int listener);
  void take_returned();
  void on_readable(waiting_connection& connection);
  bool speaks_http(int fd);
  void work();

  listening_sockets listening_;
  serve_handler serve_;
  std::string lm_hint_;
  socket_handle wake_; ///< An eventfd.
  std::atomic<uint64_t> wrong_protocol_{0};

  // -- the listening thread's -----------------------------------------------------------
  std::vector<waiting_connection> waiting_;
  clock::time_point accept_again_; ///< After running out of file descriptors.

  // -- shared ---------------------------------------------------------------------------
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<socket_handle> queued_;
  std::vector<socket_handle> returned_;
  bool stopping_ = false;

  std::vector<std::thread> threads_;
};

} // namespace kvasir
