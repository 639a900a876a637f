// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/engine_actor.hpp"
#include "actors/inline_transfer.hpp"
#include "actors/session_table.hpp"
#include "actors/shared_transfer.hpp"

#include <caf/typed_event_based_actor.hpp>

namespace kvasir {

/// Implements `engine_actor`.
///
///   unknown --register--> registered --silence--> dormant --any sign of life--> registered
///                         registered, dormant --unregister--> unknown
///
/// An instance whose registration is refused becomes unknown, but nothing that it was handed out is
/// free before it is fenced. What was asked before an instance became unknown counts no more, though
/// it may be registered again by then: neither a registration nor a transfer goes on. A dormant
/// instance has no layout in use and no live reservation, but what was handed out to it stays
/// quarantined until its process is fenced: a frozen worker that wakes up may still write.
class engine final : public engine_actor::base {
public:
  engine(caf::actor_config& config, uint64_t instance, session_table_actor sessions,
         instance_options options);

  behavior_type make_behavior() override;
  const char* name() const override { return "engine"; }

private:
  enum class state : uint8_t { unknown, registered, dormant };

  caf::result<void> on_register(register_engine& request);
  void on_unregister();
  void lose_registration();
  void become_unknown();
  liveness on_check_liveness();
  engine_status status() const;

  /// A sign of life.
  void touch();
  bool silent() const;
  transfer_strategy& strategy();

  /// Names the chunks of `range`, then goes on with `next(job)`.
  /// An error goes to `answer`.
  template <class Answer, class Next>
  void resolve(prompt_range& range, bool for_retrieve, bool with_tokens,
               caf::typed_response_promise<Answer> answer, Next next);

  uint64_t instance_;
  session_table_actor sessions_;
  instance_options options_;
  transfer_books books_;
  inline_transfer inline_;
  shared_transfer shared_;
  uint64_t incarnation_; ///< Larger than that of every actor that this instance had before.
  state state_ = state::unknown;
  uint64_t times_unknown_ = 0; ///< How often it became so: tells late answers.
  register_engine registration_;
  bool inline_only_ = false; ///< Its chunks come inline: it could not map the pool.
  bool pinged_ = false;
  bool disconnected_ = false;
  caf::actor_clock::time_point last_seen_;
};

} // namespace kvasir
