// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/io_unit.hpp"

#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace kvasir {

/// Requests of one I/O unit that wait for their actors, each with what follows the answer.
///
/// Threading: unit's thread.
class mp_calls {
public:
  explicit mp_calls(io_unit& unit) : unit_(unit) {}

  /// Asks `actor`. `done(io_reply<T>&)` runs exactly once: before this returns, if the answer is
  /// there by then (the usual case), or in a later round.
  template <class T, class Handle, class Message, class Done>
  void ask(const Handle& actor, Message what, io_unit::clock::duration deadline, Done done) {
    auto made = std::make_unique<call<T, Done>>(*this, std::move(done));
    auto& waiting = *made;
    unit_.request(actor, std::move(what), waiting.reply, deadline);
    if (!waiting.reply.pending()) {
      waiting.done(waiting.reply);
      return;
    }
    waiting_.emplace(&waiting, std::move(made));
  }

  size_t waiting() const noexcept { return waiting_.size(); }

private:
  template <class T, class Done>
  class call final : public io_task {
  public:
    call(mp_calls& all, Done next)
      : reply(all.unit_, *this),
        done(std::move(next)),
        all_(all) {}

    void run() override {
      if (reply.pending())
        return;
      done(reply);
      all_.remove(*this);
    }

    io_reply<T> reply;
    Done done;

  private:
    mp_calls& all_;
  };

  void remove(io_task& ended) {
    auto node = waiting_.extract(&ended);
    if (!node.empty())
      unit_.retire(std::move(node.mapped()));
  }

  io_unit& unit_;
  std::unordered_map<io_task*, std::unique_ptr<io_task>> waiting_;
};

} // namespace kvasir
