// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/configure.hpp"
#include "messages/errc.hpp"

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>
#include <caf/expected.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace kvasir::test {

/// Keeps every answer that arrives, also a second one to the same request.
class reply_box final : public caf::monitorable_actor {
public:
  using observer = std::function<void(uint64_t request, caf::message& answer)>;

  explicit reply_box(caf::actor_config& config) : caf::monitorable_actor(config) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    if (!element || !element->mid.is_response())
      return;
    auto id = element->mid.request_id().integer_value();
    auto answer = element->move_content_to_message();
    if (observe)
      observe(id, answer);
    answers[id].push_back(std::move(answer));
  }

  const char* name() const override { return "reply_box"; }

  std::map<uint64_t, std::vector<caf::message>> answers;
  observer observe; ///< Called while the answering actor still runs its handler.
};

/// @returns the value or the error in an answer.
template <class Result>
caf::expected<Result> unwrap(caf::message answer) {
  if (answer.match_elements<caf::error>())
    return answer.get_as<caf::error>(0);
  if constexpr (std::is_void_v<Result>) {
    if (answer.empty())
      return caf::unit;
  } else if (answer.match_elements<Result>()) {
    return answer.get_as<Result>(0);
  }
  return caf::make_error(caf::sec::unexpected_response);
}

/// The answer to a request that was started: exactly one, sooner or later.
template <class Result>
class awaited {
public:
  awaited(reply_box& box, uint64_t id) : box_(&box), id_(id) {}

  size_t count() const {
    auto found = box_->answers.find(id_);
    return found == box_->answers.end() ? 0 : found->second.size();
  }
  bool pending() const { return count() == 0; }

  caf::expected<Result> get() const {
    if (pending())
      return caf::make_error(caf::sec::request_timeout);
    return unwrap<Result>(box_->answers.at(id_).front());
  }

private:
  reply_box* box_;
  uint64_t id_;
};

/// An actor system that runs on the test's thread, one message at a time, in an order that is
/// the same in every run. No thread, no clock: nothing happens unless the test says so.
class simulation {
public:
  simulation() : box_(make_box()), box_ptr_(static_cast<reply_box*>(box_->get())) {}
  ~simulation() { run(); }
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;

  caf::actor_system& system() { return system_; }
  caf::scheduler::test_coordinator& scheduler() { return scheduler_; }
  reply_box& box() { return *box_ptr_; }
  const caf::strong_actor_ptr& box_handle() const { return box_; }

  /// Runs until no actor has a message left.
  void run() { scheduler_.run(); }

  /// Lets the next actor in line handle one message. @returns false if there is none.
  bool step() { return scheduler_.try_run_once(); }

  /// Puts `request` into the actor's mailbox and returns at once.
  template <class Result, class Handle, class Request>
  awaited<Result> start(const Handle& actor, Request request) {
    auto id = ++last_id_;
    enqueue(actor, id, std::move(request));
    return {*box_ptr_, id};
  }

  template <class Handle, class Request>
  void enqueue(const Handle& actor, uint64_t id, Request request) {
    caf::actor_cast<caf::abstract_actor*>(actor)->enqueue(
      caf::make_mailbox_element(box_, caf::make_message_id(id), {}, std::move(request)),
      nullptr);
  }

  /// Sends `request`, runs until idle, returns the answer. An answer that did not come reads
  /// as `caf::sec::request_timeout`.
  template <class Result = void, class Handle, class Request>
  caf::expected<Result> ask(const Handle& actor, Request request) {
    auto answer = start<Result>(actor, std::move(request));
    run();
    return answer.get();
  }

private:
  struct config : caf::actor_system_config {
    config() {
      configure(*this);
      set("scheduler.policy", caf::atom("testing"));
      set("logger.verbosity", caf::atom("quiet"));
    }
  };

  caf::strong_actor_ptr make_box() {
    caf::actor_config box_config{nullptr};
    return caf::make_actor<reply_box, caf::strong_actor_ptr>(
      system_.next_actor_id(), system_.node(), &system_, box_config);
  }

  config config_;
  caf::actor_system system_{config_};
  caf::scheduler::test_coordinator& scheduler_
    = dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  caf::strong_actor_ptr box_;
  reply_box* box_ptr_;
  uint64_t last_id_ = 0;
};

} // namespace kvasir::test

namespace doctest {

/// Makes a failed check print the reason.
template <class T>
struct StringMaker<caf::expected<T>> {
  static String convert(const caf::expected<T>& value) {
    if (value)
      return "a value";
    auto& why = value.error();
    if (why.category() == caf::atom("kvasir"))
      return kvasir::to_string(static_cast<kvasir::errc>(why.code())).c_str();
    return ("error " + std::to_string(why.code())).c_str();
  }
};

} // namespace doctest
