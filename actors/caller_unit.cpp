#include "actors/caller_unit.hpp"

#include "actors/handover.hpp"

#include <caf/abstract_actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

namespace kvasir {

/// One question that this thread is asking.
struct caller_unit::frame {
  caller_unit* unit = nullptr;
  caf::resumable* actor = nullptr; ///< Handed over by CAF with one reference; ours to resume.
  frame* outer = nullptr; ///< A caller may itself be an actor that another caller runs.
};

thread_local caller_unit::frame* caller_unit::current_frame = nullptr;

void caller_unit::exec_later(caf::resumable* actor) {
  // An actor may keep naming this unit as its context while another thread runs it.
  if (current_frame != nullptr && current_frame->unit == this && current_frame->actor == nullptr
      && actor == inline_actor_)
    current_frame->actor = actor;
  else
    hand_to_scheduler(actor);
}

void caller_unit::hand_to_scheduler(caf::resumable* actor) {
  counters_.scheduler_enqueues.fetch_add(1, std::memory_order_relaxed);
  system().scheduler().enqueue(actor);
}

void caller_unit::enqueue(caf::abstract_actor* receiver, caf::mailbox_element_ptr element) {
  frame asking{this, nullptr, current_frame};
  current_frame = &asking;
  handover_release(receiver); // The element is complete: what was written to it goes along.
  receiver->enqueue(std::move(element), this);
  if (auto actor = std::exchange(asking.actor, nullptr)) {
    counters_.inline_resumes.fetch_add(1, std::memory_order_relaxed);
    handover_acquire(receiver);
    auto result = actor->resume(this, quantum);
    handover_release(receiver);
    switch (result) {
      case caf::resumable::resume_later:
        hand_to_scheduler(actor);
        break;
      case caf::resumable::awaiting_message:
      case caf::resumable::done:
        caf::intrusive_ptr_release(actor);
        break;
      case caf::resumable::shutdown_execution_unit:
        break; // Only CAF's own workers are asked to end this way.
    }
  }
  current_frame = asking.outer;
}

} // namespace kvasir
