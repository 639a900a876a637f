// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/io_unit.hpp"
#include "actors/lm_door.hpp"
#include "actors/lm_outbox.hpp"
#include "actors/socket.hpp"
#include "backends/checksum.hpp"
#include "messages/lm_frame.hpp"

#include <memory>
#include <string>
#include <vector>

namespace kvasir {

/// One client of the lm:// port. Requests are answered in order; several may be on their way.
///
///   header -> PUT: first_byte -> reserving -> receiving -> header
///                       any of them refused -> draining -> header
///             GET: acquiring -> (verifying) -> header      EXIST, HEALTH: checking -> header
///             LIST: listing -> header
///
/// A PUT asks for its slot when the first byte of its value is here, so that a header alone
/// never evicts anything; its bytes go straight from the socket into the slot, and the object
/// appears when the last one arrived. A GET's bytes leave from the slot. Framing that is lost
/// ends the connection; everything else is answered.
///
/// Threading: its unit's thread. Blocking: never.
class lm_connection final : public io_task {
public:
  lm_connection(lm_shard& shard, socket_handle socket);
  ~lm_connection() override;

  /// Starts to watch the socket.
  void open();

  void on_events(uint32_t events) override;
  void run() override;

  /// Ends it now: leases, socket, object. Idempotent within a round.
  void close();

private:
  /// What one connection moves before others get their turn.
  static constexpr uint64_t turn_bytes = 2 << 20;

  enum class state : uint8_t {
    header,
    first_byte,
    reserving,
    receiving,
    draining,
    acquiring,
    verifying,
    checking,
    listing,
  };

  enum class progress : uint8_t {
    more,    ///< Go on.
    blocked, ///< Wait for the socket or for an answer.
    yield,   ///< Let others run, then go on.
    ended,   ///< Close.
  };

  class stall_timer final : public wheel_timer {
  public:
    explicit stall_timer(lm_connection& self) noexcept : self_(self) {}

  private:
    void on_timer() override { self_.on_stall_timer(); }
    lm_connection& self_;
  };

  progress step();
  progress on_header();
  progress begin_put(const lm::client_header_result& request);
  progress begin_get(const lm::client_header_result& request);
  progress begin_check();
  progress on_first_byte();
  progress on_reserved();
  progress receive_body();
  progress finish_put();
  progress drain_body();
  progress on_acquired();
  progress verify_value();
  progress on_checked();
  progress on_listed();
  progress lose_framing(const lm::client_header_result& request);
  progress refuse_foreigner(lm::protocol seen);

  /// Reads into `target`, but for what `dry_` says is not there.
  /// @returns `more` with `got` bytes, `blocked`, or `ended`.
  progress read_some(std::byte* target, size_t size, size_t& got);

  /// Reads what is there into the buffer. @returns `more` if bytes came.
  progress fill();
  progress flush();

  /// What a step returns that cannot go on: answers that are due leave first.
  progress wait(progress outcome = progress::blocked);
  size_t buffered() const noexcept { return end_ - begin_; }
  lm::client_header_result parse_next() const;
  void drop_value(lm_count why);
  void give_up_waiting(owner_id& owner);
  void send_value();
  bool in_transfer() const noexcept;
  void watch_for_stall();
  void on_stall_timer();
  progress yield_to_others();
  std::string peer() const;

  lm_shard& shard_;
  socket_handle socket_;
  owner_id writer_; ///< Owns what this connection reserves,
  owner_id reader_; ///< and this what it holds.
  state state_ = state::header;
  bool knows_protocol_ = false;
  bool doomed_ = false;
  bool closed_ = false;
  bool wrote_ = false;        ///< The manager knows `writer_`.
  bool read_ = false;         ///< The manager knows `reader_`.
  bool last_was_put_ = false; ///< Or the EXIST that acknowledges one.
  bool put_unanswered_ = false; ///< Nothing was asked since a PUT.
  bool hung_up_ = false;      ///< The client closed its side; bytes may still be here.
  bool dry_ = false;          ///< The last read took all there was; an event will tell of more.

  std::unique_ptr<std::byte[]> buffer_; ///< Headers, and the first bytes of a value.
  size_t begin_ = 0;
  size_t end_ = 0;
  lm_outbox outbox_;
  uint64_t moved_bytes_ = 0; ///< In and out, ever.
  uint64_t turn_end_ = 0;    ///< `moved_bytes_` at which this turn ends.

  // -- the PUT or GET at hand -----------------------------------------------------------
  object_key key_;
  object_layout layout_;
  uint64_t size_bytes_ = 0;
  uint64_t done_bytes_ = 0;
  checksum_stream hash_;
  io_reply<write_lease> reserved_;
  io_reply<read_lease> acquired_;

  // -- the EXISTs and HEALTHs, or the LIST at hand --------------------------------------
  enum class check : uint8_t { exist, health, bad };
  std::vector<check> checks_;
  io_reply<exist_result> exist_;
  io_reply<object_list> list_;
  std::string list_text_;
  int32_t list_count_ = 0;

  stall_timer stall_timer_{*this};
  io_reply<pressure> pressure_;
  bool pressure_asked_ = false;
  uint64_t moved_at_last_look_ = 0;
  std::chrono::milliseconds stalled_for_{0}; ///< Without any byte,
  std::chrono::milliseconds slow_for_{0};    ///< and below the least rate under pressure.
};

} // namespace kvasir
