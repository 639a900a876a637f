// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/handover.hpp"
#include "actors/io_reply.hpp"
#include "actors/timer_wheel.hpp"

#include <caf/actor_cast.hpp>
#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/response_type.hpp>
#include <caf/resumable.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kvasir {

/// A connection, a listener: whatever runs on an I/O unit's thread and on no other.
///
/// None of it may throw, nor may a posted job: that ends the process (`std::terminate`), for
/// nobody knows which slots such a task still writes into.
class io_task {
public:
  io_task() = default;
  io_task(const io_task&) = delete;
  io_task& operator=(const io_task&) = delete;
  virtual ~io_task() = default;

  /// Its file descriptor became ready (`EPOLL…` bits, edge-triggered). `run` follows.
  virtual void on_events(uint32_t) {}

  /// Events, an awaited answer or `io_unit::schedule` are the reasons to call this. Runs a
  /// bounded amount of work; schedules itself for more.
  virtual void run() = 0;

private:
  friend class io_unit;
  bool scheduled_ = false;
  bool retired_ = false;
};

/// What a unit did since it started. Written by the unit's thread, read by any.
struct io_unit_counters {
  std::atomic<uint64_t> requests{0};           ///< Messages sent to actors, with answer or not.
  std::atomic<uint64_t> inline_resumes{0};     ///< Actors run by this thread.
  std::atomic<uint64_t> scheduler_enqueues{0}; ///< Actors handed to CAF's scheduler instead.
  std::atomic<uint64_t> foreign_replies{0};    ///< Answers that another thread brought.
  std::atomic<uint64_t> eventfd_writes{0};     ///< Wake-ups of this unit's thread.
  std::atomic<uint64_t> timed_out{0};          ///< Requests whose deadline passed.
};

/// One thread that serves sockets and, in the same breath, runs the actors it asks.
///
/// A wake-up between two threads costs 10 to 100 µs, more than the whole request. So this
/// thread *is* a CAF execution unit: it puts a request into an actor's mailbox naming itself
/// as the unit, is handed the idle actor through `exec_later`, resumes it at once and has the
/// answer when `request` returns. Exclusion, order and typed messages stay CAF's: if another
/// unit is just running the actor, that one handles the message, and the answer comes back
/// through this unit's list and its eventfd (docs/decisions/0001).
///
/// Only actors named by `run_inline` run here: their handlers never block and cost no more
/// than the request. All others go to CAF's scheduler, as do actors that used up their quantum.
///
/// Threading: `start`, `stop`, `post` and `counters` from any thread; the rest only from the
/// unit's own (`on_this_thread`), or before `start`.
/// Blocking: waits in epoll only.
/// Lifetime: stop the unit after the tasks on it are gone and before the actor system ends.
class io_unit final : public caf::execution_unit {
public:
  using clock = timer_wheel::clock;

  /// Messages an actor may handle in one go on this thread.
  static constexpr size_t quantum = 32;

  explicit io_unit(caf::actor_system& system);
  ~io_unit() override;

  /// Names an actor that this unit runs itself.
  template <class Handle>
  void run_inline(const Handle& actor) {
    add_inline(caf::actor_cast<caf::abstract_actor*>(actor));
  }

  /// Takes that back, so that the actor may end.
  template <class Handle>
  void forget_inline(const Handle& actor) {
    remove_inline(caf::actor_cast<caf::abstract_actor*>(actor));
  }

  void start();

  /// Ends the thread. Waiting requests fail with `errc::peer_unreachable`; an actor still in
  /// its queue goes to CAF's scheduler. Idempotent.
  void stop();

  bool on_this_thread() const noexcept;

  /// Runs `job` on the unit's thread, soon. After `stop` it is destroyed unrun.
  void post(std::function<void()> job);

  const io_unit_counters& counters() const noexcept { return counters_; }

  // -- unit's thread only ---------------------------------------------------------------

  /// Watches `fd` edge-triggered for `events`; `task` outlives it or calls `unwatch`.
  /// @returns false if the kernel refuses (errno is set).
  bool watch(int fd, uint32_t events, io_task& task);
  bool rewatch(int fd, uint32_t events, io_task& task);
  void unwatch(int fd);

  /// Runs `task` in the next round.
  void schedule(io_task& task);

  /// Destroys `task` when this round ends. It is not run again.
  void retire(std::unique_ptr<io_task> task);

  /// Time of this round; refreshed before tasks run.
  clock::time_point now() const noexcept { return now_; }

  void arm(wheel_timer& timer, clock::duration after) { wheel_.arm(timer, now_ + after); }

  /// Asks `actor`. When this returns, `answer` is usually there already; if it is still
  /// `pending`, its task is scheduled when it arrives. Exactly one of value or error arrives:
  /// the actor's, `errc::timed_out` after `deadline`, or CAF's error of a dead receiver.
  /// @pre `!answer.pending()`
  template <class Handle, class Request, class T>
  void request(const Handle& actor, Request&& what, io_reply<T>& answer,
               clock::duration deadline) {
    using request_type = std::decay_t<Request>;
    using declared = caf::response_type_t<typename Handle::signatures, request_type>;
    static_assert(std::is_same_v<declared, typename io_reply<T>::type_list>,
                  "the actor answers this request with another type");
    auto id = begin(answer);
    auto receiver = caf::actor_cast<caf::abstract_actor*>(actor);
    enqueue(receiver, caf::make_mailbox_element(self_, id, {}, std::forward<Request>(what)));
    end(answer, deadline);
  }

  /// Sends without waiting for an answer.
  template <class Handle, class Request>
  void send(const Handle& actor, Request&& what) {
    static_assert(caf::response_type<typename Handle::signatures, std::decay_t<Request>>::valid,
                  "the actor does not handle this message");
    auto receiver = caf::actor_cast<caf::abstract_actor*>(actor);
    enqueue(receiver, caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                                                std::forward<Request>(what)));
  }

  // -- called by CAF --------------------------------------------------------------------

  void exec_later(caf::resumable* actor) override;

private:
  class mailman;
  friend class io_reply_base;

  void add_inline(caf::abstract_actor* actor);
  void remove_inline(caf::abstract_actor* actor);
  caf::message_id begin(io_reply_base& answer);
  void enqueue(caf::abstract_actor* receiver, caf::mailbox_element_ptr element);
  void end(io_reply_base& answer, clock::duration deadline);
  void run_actors();
  void hand_to_scheduler(caf::resumable* actor);
  void deliver(caf::mailbox_element& element);
  void deliver_foreign(caf::mailbox_element_ptr element);
  void wake();
  void run();
  void run_round(int timeout_ms);
  void take_inbox();
  void destroy_retired();
  int wait_ms() const;

  std::vector<const caf::resumable*> inline_actors_;
  std::vector<caf::resumable*>
    run_queue_; ///< Holds one reference each, as CAF hands them over.
  io_reply_table replies_;
  io_reply_base* asking_ = nullptr; ///< Inside `request`: its answer needs no scheduling.
  timer_wheel wheel_;
  clock::time_point now_;
  std::vector<io_task*> ready_;
  std::vector<io_task*> running_;
  std::vector<std::unique_ptr<io_task>> retired_;
  caf::strong_actor_ptr self_; ///< Receives the answers.
  mailman* mailman_ = nullptr;
  int epoll_fd_ = -1;
  int event_fd_ = -1;
  io_unit_counters counters_;
  std::thread thread_;

  std::mutex inbox_mutex_; ///< Guards what other threads bring.
  std::vector<caf::mailbox_element_ptr> inbox_replies_;
  std::vector<std::function<void()>> inbox_jobs_;
  bool woken_ = false;
  bool stopping_ = false;
};

} // namespace kvasir
