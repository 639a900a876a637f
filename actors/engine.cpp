#include "actors/engine.hpp"

#include "actors/handover.hpp"

#include <utility>

namespace kvasir {

namespace {

/// How many times as long as it took to reap it a silent instance is remembered, so that it can
/// come back without registering.
constexpr int forget_after = 10;

/// Both steps of a transfer name the same request, range and chunks.
std::string transfer_id(const prompt_range& range, const resolved_chunks& chunks) {
  auto id
    = range.request_id + '\0' + std::to_string(range.start) + '-' + std::to_string(range.end);
  if (!chunks.keys.empty())
    id += '\0' + chunks.keys.back().bytes;
  return id;
}

/// A typed promise of nothing cannot be kept in CAF 0.17.
void deliver_done(caf::response_promise& answer) {
  answer.deliver(caf::unit);
}

} // namespace

engine::engine(caf::actor_config& config, uint64_t instance, session_table_actor sessions,
               instance_options options)
  : engine_actor::base(config),
    instance_(instance),
    sessions_(std::move(sessions)),
    options_(std::move(options)),
    inline_(books_),
    shared_(books_, inline_),
    incarnation_(next_owner_id()),
    last_seen_(clock().now()) {
  books_.self = this;
  books_.options = &options_;
}

engine::behavior_type engine::make_behavior() {
  return {
    [this](register_engine& request) {
      handover_scope scope{this};
      return on_register(request);
    },
    [this](const unregister_engine&) -> caf::result<void> {
      handover_scope scope{this};
      on_unregister();
      return caf::unit;
    },
    [this](const engine_ping&) -> caf::result<void> {
      handover_scope scope{this};
      pinged_ = true;
      touch();
      return caf::unit;
    },
    [this](prepare_store& request) -> caf::result<store_plan> {
      handover_scope scope{this};
      auto answer = make_response_promise<store_plan>();
      resolve(request.range, false, false, answer, [this, answer](transfer_job job) {
        strategy().prepare_store(std::move(job), answer);
      });
      return answer;
    },
    [this](commit_store& request) -> caf::result<store_outcome> {
      handover_scope scope{this};
      auto answer = make_response_promise<store_outcome>();
      resolve(request.range, false, true, answer, [this, answer](transfer_job job) {
        strategy().commit_store(std::move(job), answer);
      });
      return answer;
    },
    [this](begin_inline_store& request) -> caf::result<inline_store_plan> {
      handover_scope scope{this};
      auto answer = make_response_promise<inline_store_plan>();
      resolve(request.range, false, true, answer,
              [this, answer, came = std::move(request.chunks)](transfer_job job) {
                inline_only_ = true;
                shared_.cancel_store(job.id);
                inline_.begin_store(std::move(job), came, answer);
              });
      return answer;
    },
    [this](const finish_inline_store& request) -> caf::result<store_outcome> {
      handover_scope scope{this};
      auto answer = make_response_promise<store_outcome>();
      inline_.finish_store(request, answer);
      return answer;
    },
    [this](prepare_retrieve& request) -> caf::result<retrieve_plan> {
      handover_scope scope{this};
      auto answer = make_response_promise<retrieve_plan>();
      resolve(request.range, true, false, answer, [this, answer](transfer_job job) mutable {
        if (job.chunks.announced) {
          strategy().prepare_retrieve(std::move(job), answer);
          return;
        }
        ++books_.counters.retrieves_failed;
        answer.deliver(retrieve_plan{});
      });
      return answer;
    },
    [this](const finish_inline_retrieve& request) {
      handover_scope scope{this};
      inline_.finish_retrieve(request);
    },
    [this](commit_retrieve& request) -> caf::result<void> {
      handover_scope scope{this};
      auto answer = make_response_promise<void>();
      resolve(request.range, false, false, answer, [this, answer](transfer_job job) mutable {
        shared_.commit_retrieve(job);
        deliver_done(answer);
      });
      return answer;
    },
    [this](const attach_seen& request) {
      handover_scope scope{this};
      shared_.set_attached(request.attached);
    },
    [this](const engine_disconnected&) {
      handover_scope scope{this};
      disconnected_ = true;
    },
    [this](const check_liveness&) -> caf::result<liveness> {
      handover_scope scope{this};
      return on_check_liveness();
    },
    [this](const fence_engine&) {
      handover_scope scope{this};
      if (state_ != state::registered)
        shared_.fence();
    },
    [this](const get_engine_status&) -> caf::result<engine_status> {
      handover_scope scope{this};
      return status();
    },
  };
}

// -- registration and life --------------------------------------------------------------

caf::result<void> engine::on_register(register_engine& request) {
  if (state_ != state::unknown && request.layout != registration_.layout) {
    shared_.expire(true);
    if (!shared_.idle())
      // What is out was measured in chunks of the former layout.
      return caf::make_error(errc::layout_mismatch);
    shared_.fence(); // What is on its way was, too.
    become_unknown();
  }
  auto answer = make_response_promise<void>();
  auto wanted = add_layout{instance_, incarnation_, request.model, request.world_size,
                           request.layout.digest()};
  this->request(sessions_, caf::infinite, std::move(wanted))
    .then(
      [this, answer, before = times_unknown_, request = std::move(request)]() mutable {
        handover_scope scope{this};
        if (before != times_unknown_) { // Unregistered meanwhile.
          answer.deliver(caf::make_error(errc::not_found));
          return;
        }
        registration_ = std::move(request);
        books_.layout = registration_.layout;
        books_.stored_as = mp::stored_layout(registration_.layout);
        books_.chunk_bytes = registration_.layout.chunk_bytes();
        state_ = state::registered;
        inline_only_ = false;
        shared_.set_attached(false);
        touch();
        deliver_done(answer);
      },
      [this, answer, before = times_unknown_](caf::error& failure) mutable {
        handover_scope scope{this};
        if (before == times_unknown_)
          lose_registration();
        answer.deliver(std::move(failure));
      });
  return answer;
}

void engine::on_unregister() {
  send(sessions_, remove_layout{instance_, incarnation_});
  shared_.fence();
  become_unknown();
}

void engine::touch() {
  last_seen_ = clock().now();
  disconnected_ = false;
  if (state_ != state::dormant)
    return;
  state_ = state::registered;
  ++books_.counters.revived;
  this
    ->request(sessions_, caf::infinite,
              add_layout{instance_, incarnation_, registration_.model, registration_.world_size,
                         registration_.layout.digest()})
    .then([] {},
          [this, before = times_unknown_](const caf::error&) {
            handover_scope scope{this};
            if (before == times_unknown_)
              lose_registration(); // Another layout is in use by now.
          });
}

void engine::become_unknown() {
  state_ = state::unknown;
  ++times_unknown_;
}

/// Its slots stay out of use: it did not say that it lets go of them.
void engine::lose_registration() {
  become_unknown();
  shared_.expire(true);
}

bool engine::silent() const {
  auto limit = pinged_ || disconnected_ ? options_.reap_after : options_.reap_mute_after;
  return last_seen_ + limit <= const_cast<engine*>(this)->clock().now();
}

liveness engine::on_check_liveness() {
  shared_.expire(false);
  if (state_ == state::registered && silent()) {
    state_ = state::dormant;
    ++books_.counters.reaped;
    send(sessions_, remove_layout{instance_, incarnation_});
    shared_.expire(true);
  }
  liveness result;
  result.registered = state_ == state::registered;
  result.wants_fence = !result.registered && !shared_.idle();
  result.forgotten = !result.registered && shared_.idle() && inline_.idle()
                     && last_seen_ + forget_after * options_.reap_after <= clock().now();
  result.process = registration_.process;
  return result;
}

// -- transfers --------------------------------------------------------------------------

transfer_strategy& engine::strategy() {
  if (options_.shared && !inline_only_)
    return shared_;
  return inline_;
}

template <class Answer, class Next>
void engine::resolve(prompt_range& range, bool for_retrieve, bool with_tokens,
                     caf::typed_response_promise<Answer> answer, Next next) {
  if (state_ == state::unknown) {
    answer.deliver(caf::make_error(errc::not_found));
    return;
  }
  touch();
  transfer_job job;
  job.tenant = range.salt;
  prompt_range ends; // What the name of the transfer needs of it.
  ends.request_id = range.request_id;
  ends.start = range.start;
  ends.end = range.end;
  this
    ->request(sessions_, caf::infinite,
              resolve_chunks{std::move(range), registration_.layout.digest(), with_tokens,
                             for_retrieve})
    .then(
      [this, job = std::move(job), ends = std::move(ends), answer, before = times_unknown_,
       next = std::move(next)](resolved_chunks& chunks) mutable {
        handover_scope scope{this};
        if (before != times_unknown_) { // Unregistered meanwhile: nobody would end its leases.
          answer.deliver(caf::make_error(errc::not_found));
          return;
        }
        job.id = transfer_id(ends, chunks);
        job.chunks = std::move(chunks);
        next(std::move(job));
      },
      [this, answer](caf::error& failure) mutable {
        handover_scope scope{this};
        answer.deliver(std::move(failure));
      });
}

engine_status engine::status() const {
  auto result = books_.counters;
  result.instance = instance_;
  result.model = registration_.model;
  result.world_size = registration_.world_size;
  result.layout = registration_.layout;
  result.registered = state_ == state::registered;
  result.inline_only = inline_only_ || !options_.shared;
  result.pid = registration_.process.pid;
  result.handed_out_bytes = shared_.handed_out_bytes();
  result.quarantined_bytes = shared_.quarantined_bytes();
  result.pending_writes = shared_.pending_writes();
  result.pending_reads = shared_.pending_reads();
  return result;
}

} // namespace kvasir
