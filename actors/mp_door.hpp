// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/counter.hpp"
#include "actors/engine.hpp"
#include "actors/inline_buffers.hpp"
#include "actors/io_unit.hpp"
#include "actors/kv_event_log.hpp"
#include "actors/mp_call.hpp"
#include "actors/mp_clients.hpp"
#include "actors/mp_counts.hpp"
#include "actors/mp_socket.hpp"
#include "actors/seal_queue.hpp"
#include "actors/worker_pool.hpp"
#include "backends/segment_watch.hpp"
#include "messages/mp_protocol.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace kvasir {

struct mp_options {
  uint32_t chunk_size = 256; ///< Tokens.
  std::string pool_name;     ///< Below /dev/shm; empty: chunks travel inline.
  uint64_t pool_bytes = 0;
  std::byte* pool = nullptr;
  uint64_t boot_number = 1; ///< Not 0: the answer to a ping.
  instance_options engine;
  kv_event_log_actor events;
  std::chrono::milliseconds tick_every{1'000};
  uint64_t max_inline_bytes = 0;   ///< In flight, of requests and replies together.
  uint64_t max_unsealed_bytes = 0; ///< Of chunks held until they are hashed.
  size_t max_instances = 1'024;
  bool verify_checksums = true;
  uint16_t lm_port = 0; ///< Said when another protocol's client comes here.
};

/// The MP front door: decodes requests, asks actors, encodes their answers. One I/O unit.
///
/// Every request with a readable uid and operation is answered, never with silence: LMCache's
/// clients would wait five minutes for it. What cannot be served gets the answer that its caller
/// takes for "not cached" or "not stored", or one that fails the call at once.
///
/// Threading: unit's thread, but for construction, `counters`, `open_clients` and `engines`.
class mp_door final : public io_task {
public:
  /// @pre all of these outlive the door
  mp_door(io_unit& unit, std::unique_ptr<mp_socket> socket, caf::actor_system& system,
          session_table_actor sessions, worker_pool& workers, const mp_options& options);
  ~mp_door() override;

  /// Starts to serve.
  void open();

  /// From now on requests are refused; `on_idle` is called once no other is under way.
  void drain(std::function<void()> on_idle);

  /// Stops to watch the socket. Nothing is served or answered after it.
  void close();

  void on_events(uint32_t) override {}
  void run() override;

  const counter_set<mp_count>& counters() const noexcept { return counters_; }
  uint64_t open_clients() const noexcept { return open_clients_.load(); }

  /// All instances that ever registered and did not unregister.
  std::vector<std::pair<uint64_t, engine_actor>> engines() const;

private:
  struct instance {
    engine_actor actor;
    mp::kv_layout layout;
    client_id client = 0;
    uint64_t opens_before = 0; ///< Of the segment, when the instance was told its name.
    bool attach_known = false;
  };

  /// A client that wants to know what comes and goes.
  struct subscription {
    mp_request request; ///< Whom to send to.
    client_id client = 0;
    uint64_t instance = 0;
    std::string model;
    uint64_t cursor = 0;
    uint32_t max_events = 1;
    bool credit = true; ///< It may be sent a batch. Never more than one at a time.
    bool reading = false;
  };

  /// A request under way; ends its client's share of what may be under way.
  class job;

  class timer final : public wheel_timer {
  public:
    timer(mp_door& self, void (mp_door::*then)()) noexcept : self_(self), then_(then) {}

  private:
    void on_timer() override { (self_.*then_)(); }
    mp_door& self_;
    void (mp_door::*then_)();
  };

  // -- receiving and answering (mp_door.cpp) --------------------------------------------
  void handle(mp_request request);
  void watch_connections();
  void on_tick();
  void look_after(uint64_t number);
  void send(const mp_request& to, zmq::message_t* result);
  void count_sent(const mp_request& to, mp_socket::sent outcome);
  void answer(job& of, std::string_view result);
  void answer(job& of, zmq::message_t result);
  void answer_void(job& of);
  void fail(job& of);

  /// Says no in the way that the operation's caller can bear.
  void refuse(job& of);

  // -- operations (mp_operations.cpp) ---------------------------------------------------
  void serve(job of, mp::get_chunk_size_request& request);
  void serve(job of, mp::get_experimental_request& request);
  void serve(job of, mp::noop_request& request);
  void serve(job of, mp::ping_request& request);
  void serve(job of, mp::clear_request& request);
  void serve(job of, mp::lookup_request& request);
  void serve(job of, mp::query_prefetch_status_request& request);
  void serve(job of, mp::wait_prefetch_status_request& request);
  void serve(job of, mp::free_lookup_locks_request& request);
  void serve(job of, mp::end_session_request& request);
  void serve(job of, mp::report_block_allocation_request& request);
  void serve(job of, mp::subscribe_kv_events_request& request);
  void serve(job of, mp::register_request& request);
  void serve(job of, mp::unregister_request& request);
  void register_instance(job of, uint64_t number, register_engine wanted);
  void on_registered(job of, uint64_t number, const mp::kv_layout& layout,
                     const caf::error& failure);
  void remove_instance(uint64_t number);
  void fence_if_gone(const engine_actor& actor, process_id process);

  // -- event streams (mp_subscriptions.cpp) ---------------------------------------------
  void control_subscription(const mp_request& request);
  void read_events(uint64_t id, bool wait);
  void on_events(uint64_t id, io_reply<kv_event_batch>& reply);
  void end_subscription(uint64_t id);
  void end_subscriptions_of(client_id client);

  // -- transfers (mp_transfers.cpp) -----------------------------------------------------
  void serve(job of, mp::prepare_store_request& request);
  void serve(job of, mp::commit_store_request& request);
  void serve(job of, mp::prepare_retrieve_request& request);
  void serve(job of, mp::commit_retrieve_request& request);
  engine_actor engine_of(job& of, uint64_t number, const mp::cache_key& key);
  void store_inline(job of, const engine_actor& actor, mp::commit_store_request& request);
  void copy_inline(job of, const engine_actor& actor, inline_store_plan plan,
                   std::vector<std::span<const std::byte>> chunks, uint64_t bytes);
  void retrieve_inline(job of, const engine_actor& actor, const mp::kv_layout& layout,
                       retrieve_plan plan);
  void answer_stored(job& of, bool stored);
  void seal_later(std::vector<read_lease> unsealed);
  void on_seal_tick();
  void leave_unsealed(const std::vector<read_lease>& chunks);
  void end_holds(const std::vector<read_lease>& chunks);
  void learn_attachment(instance& who);
  bool take_inline_bytes(client_id client, uint64_t bytes);

  io_unit& unit_;
  std::unique_ptr<mp_socket> socket_;
  caf::actor_system& system_;
  session_table_actor sessions_;
  worker_pool& workers_;
  const mp_options& options_;
  mp_calls calls_;
  mp_clients clients_;
  std::unique_ptr<segment_watch> segment_watch_; ///< Null without a named pool.
  counter_set<mp_count> counters_;
  std::atomic<uint64_t> open_clients_{0};
  std::shared_ptr<inline_buffers> inline_buffers_;
  std::unordered_map<uint64_t, instance> instances_;
  std::deque<uint64_t> refused_; ///< Instances that were refused and not told so by a ping.
  std::unordered_map<uint64_t, subscription> subscriptions_;
  uint64_t last_subscription_ = 0;
  size_t under_way_ = 0;
  bool watching_ = false;
  std::function<void()> on_idle_;
  timer tick_timer_{*this, &mp_door::on_tick};
  seal_queue unsealed_;
  timer seal_timer_{*this, &mp_door::on_seal_tick};

  mutable std::mutex engines_mutex_; ///< Guards what `engines` reads.
  std::unordered_map<uint64_t, engine_actor> engines_;
};

} // namespace kvasir
