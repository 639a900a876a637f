// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>
#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/response_type.hpp>
#include <caf/resumable.hpp>

#include <atomic>
#include <cstdint>
#include <utility>

namespace kvasir {

/// What callers did through one unit. Read from any thread.
struct caller_unit_counters {
  std::atomic<uint64_t> inline_resumes{0};     ///< The actor was run by the thread that asked.
  std::atomic<uint64_t> scheduler_enqueues{0}; ///< Actors handed to CAF's scheduler instead.
};

/// Lets any thread ask one actor and run it in passing, as an I/O unit does on its own thread: a
/// wake-up of another thread costs 10 to 100 µs, the whole request less than 1 (docs/decisions/0012).
///
/// `request` puts the message into the actor's mailbox naming this unit. If the actor is idle, CAF
/// hands it over at once, on the calling thread, which resumes it; when `request` returns, the
/// answer was given to the asker. If another thread is just running the actor, that one handles
/// the message too, and gives the answer. All state of a call lies on the caller's stack, so that
/// any number of threads may ask through one unit.
///
/// The answer goes to `asker`, an actor whose `enqueue` gets it, on whatever thread runs the
/// actor, inside its handler: it may only take note, and must not ask.
///
/// Only the actor named by `run_inline` runs here; its handlers never block. All others, and one
/// that used up its quantum, go to CAF's scheduler.
///
/// Threading: every function but `run_inline` from any thread.
/// Lifetime: longer than the actor, which remembers the unit that ran it last.
class caller_unit final : public caf::execution_unit {
public:
  /// Messages an actor may handle in one go on a caller's thread.
  static constexpr size_t quantum = 32;

  explicit caller_unit(caf::actor_system& system) : caf::execution_unit(&system) {}

  /// Names the actor that callers run themselves. Before the first question.
  template <class Handle>
  void run_inline(const Handle& actor) {
    inline_actor_ = dynamic_cast<caf::resumable*>(caf::actor_cast<caf::abstract_actor*>(actor));
  }

  template <class Handle, class Request>
  void request(const Handle& actor, Request&& what, caf::strong_actor_ptr asker) {
    enqueue(caf::actor_cast<caf::abstract_actor*>(actor),
            caf::make_mailbox_element(std::move(asker), caf::make_message_id(1), {},
                                      std::forward<Request>(what)));
  }

  /// Sends without waiting for an answer.
  template <class Handle, class Request>
  void send(const Handle& actor, Request&& what) {
    static_assert(caf::response_type<typename Handle::signatures, std::decay_t<Request>>::valid,
                  "the actor does not handle this message");
    enqueue(caf::actor_cast<caf::abstract_actor*>(actor),
            caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                                      std::forward<Request>(what)));
  }

  const caller_unit_counters& counters() const noexcept { return counters_; }

  /// Called by CAF.
  void exec_later(caf::resumable* actor) override;

private:
  struct frame;

  void enqueue(caf::abstract_actor* receiver, caf::mailbox_element_ptr element);
  void hand_to_scheduler(caf::resumable* actor);

  static thread_local frame* current_frame;

  const caf::resumable* inline_actor_ = nullptr;
  caller_unit_counters counters_;
};

} // namespace kvasir
