// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/io_unit.hpp"
#include "actors/storage_manager.hpp"
#include "actors/unix_socket.hpp"
#include "messages/join_protocol.hpp"

#include <caf/actor_config.hpp>
#include <caf/monitorable_actor.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace kvasir {

/// What a node lends to an engine that joined it.
struct joined_node {
  join::welcome welcome;
  std::vector<socket_handle> fds; ///< As the protocol says.
  socket_handle socket;
};

/// Joins the node whose socket is at `path`.
/// @returns what it lends, `peer_unreachable` if nobody answers in time, `invalid_argument` if
/// the node is of another version. Blocks for `timeout` per step at most.
caf::expected<joined_node> join_node(const std::string& path, const join::hello& who,
                                     std::chrono::milliseconds timeout);

/// Stands for the node's storage manager: takes the same requests, sends them there, and gives the
/// answers back. Once the node is gone every request fails with `peer_unreachable`.
///
/// The node takes back what this engine reserved and holds when the socket closes, so it must be
/// the last to go: no thread may touch the pool any more.
///
/// Threading: `enqueue` from any thread, without waiting; answers arrive on the unit's thread.
/// Lifetime: counted, as all actors.
class node_link final : public caf::monitorable_actor {
public:
  node_link(caf::actor_config& config, io_unit& unit, socket_handle socket);
  ~node_link() override;

  /// Reads answers from now on. Before the first request.
  void open();

  /// Gives no more answers, and lets go of who waits. The unit's thread has ended.
  void leave();

  /// False once the node is known to be gone.
  bool answers() const noexcept { return !gone_.load(std::memory_order_relaxed); }

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* unit) override;
  const char* name() const override { return "node_link"; }

private:
  /// More than this many unanswered, and a request fails with `busy`.
  static constexpr size_t max_unanswered = 4096;

  struct asker {
    caf::strong_actor_ptr who;
    caf::message_id asked;
  };

  class reader final : public io_task {
  public:
    explicit reader(node_link& link) noexcept : link_(link) {}
    void run() override { link_.read(); }

  private:
    node_link& link_;
  };

  template <class Request>
  bool forward(caf::mailbox_element& element);
  bool flush_locked();
  void read();
  bool take_frames();
  bool deliver(const join::frame_header& header, const char* payload);
  template <class Answer>
  bool deliver_as(const asker& to, const join::frame_header& header, const char* payload);
  void give(const asker& to, caf::error why);
  void fall_silent();

  io_unit& unit_;
  socket_handle socket_;
  reader reader_{*this};
  std::vector<char> in_; ///< The unit's thread only.

  std::atomic<bool> gone_{false}; ///< Set under the lock.
  std::mutex mutex_;              ///< Guards what follows.
  std::vector<char> out_;
  std::unordered_map<uint64_t, asker> unanswered_;
  uint64_t next_id_ = 1;
};

} // namespace kvasir
