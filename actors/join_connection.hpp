// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/join_door.hpp"

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace kvasir {

/// One engine that joined, or is about to.
///
///   greeting --hello--> serving --malformed frame--> unserved
///   any --the other side closed--> gone: its leases end
///
/// Requests are handled one after another. Leases of others are never touched: what an engine
/// names and does not own is left out, and counted.
///
/// Threading: its unit's thread. Blocking: never.
class join_connection final : public io_task {
public:
  join_connection(join_door& door, socket_handle socket);

  /// Starts to watch the socket.
  void open();

  void on_events(uint32_t events) override;
  void run() override;

  /// Ends it, and its leases. Idempotent within a round.
  void close();

private:
  enum class state : uint8_t { greeting, serving, unserved };
  enum class progress : uint8_t { more, blocked, yield, ended };

  class timer final : public wheel_timer {
  public:
    timer(join_connection& self, void (join_connection::*then)()) noexcept
      : self_(self),
        then_(then) {}

  private:
    void on_timer() override { (self_.*then_)(); }
    join_connection& self_;
    void (join_connection::*then_)();
  };

  progress step();
  progress fill();
  progress flush();
  bool next_frame(join::frame_header& header) const;
  void refuse(const std::string& cause);
  void stop_serving(const std::string& cause);

  bool handle(const join::frame_header& header);
  bool begin(const join::frame_header& header, const char* payload);
  bool greet(const join::frame_header& header, const char* payload);
  caf::error lend();
  template <class Request, class T>
  bool ask(const join::frame_header& header, const char* payload, io_reply<T>& reply);
  template <class T>
  void answer(io_reply<T>& reply);
  bool pending() const;
  void answer();

  // What a request may say, and which of its leases are this engine's.
  caf::error admit(reserve_chunks& request);
  caf::error admit(finish_chunks& request);
  caf::error admit(acquire_chunks& request);
  caf::error admit(end_leases& request);
  caf::error admit(const remove_object& request);
  caf::error admit(const get_storage_status&) { return caf::none; }

  void note(const chunk_reservations& answer);
  void note(const chunks_acquired& answer);
  template <class T>
  void note(const T&) {}

  void on_hello_timer();
  void on_expiry_timer();

  join_door& door_;
  socket_handle socket_;
  const owner_id owner_;
  state state_ = state::greeting;
  bool hung_up_ = false;
  bool dry_ = false;
  bool closed_ = false;

  std::vector<char> in_;
  size_t in_begin_ = 0;
  std::vector<char> out_;
  size_t out_begin_ = 0;
  std::vector<int> lent_; ///< To go with the first byte of `out_`.
  socket_handle pool_;    ///< Until it is sent.
  uint64_t page_ = 0;     ///< On the hold board; 0: none.

  join::frame_header asked_; ///< The request at hand; id 0: none.
  io_reply<chunk_reservations> reserved_;
  io_reply<chunks_finished> finished_;
  io_reply<chunks_acquired> acquired_;
  io_reply<void> done_;
  io_reply<storage_status> status_;

  std::unordered_map<lease_id, io_unit::clock::time_point> writes_; ///< Reserved when.
  std::unordered_set<lease_id> expired_;                            ///< Of former `writes_`.
  std::unordered_set<lease_id> reads_;
  timer hello_timer_{*this, &join_connection::on_hello_timer};
  timer expiry_timer_{*this, &join_connection::on_expiry_timer};
};

} // namespace kvasir
