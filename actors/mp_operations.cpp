#include "actors/log.hpp"
#include "actors/mp_job.hpp"
#include "backends/peer_process.hpp"
#include "messages/mp_reply.hpp"

#include <caf/send.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

/// The operations of the MP door that move no chunks.
namespace kvasir {

namespace {

/// Actors of this node answer at once; this only ends a wait that should not be.
constexpr std::chrono::seconds answer_deadline{10};

/// The longest that `wait_prefetch_status` may ask for.
constexpr std::chrono::seconds longest_wait{300};

} // namespace

void mp_door::serve(job of, mp::get_chunk_size_request&) {
  answer(of, mp::encode_uint(options_.chunk_size));
}

void mp_door::serve(job of, mp::get_experimental_request&) {
  static constexpr std::array<std::string_view, 1> features{"kv_event_stream"};
  answer(of, mp::encode_texts(features));
}

void mp_door::serve(job of, mp::noop_request&) {
  answer(of, mp::encode_text("OK"));
}

/// An instance that lost its registration to a restart between two of its pings goes on asking,
/// and is refused. A ping answered with false makes LMCache's worker register again at the next.
void mp_door::serve(job of, mp::ping_request& request) {
  auto refused = refused_.end();
  if (request.instance) {
    auto i = instances_.find(*request.instance);
    if (i != instances_.end()) {
      i->second.client = of.client;
      unit_.send(i->second.actor, engine_ping{});
    } else {
      refused = std::find(refused_.begin(), refused_.end(), *request.instance);
    }
  }
  if (refused != refused_.end()) {
    refused_.erase(refused);
    counters_.add(mp_count::restarts_told);
    answer(of, mp::encode_bool(false));
    return;
  }
  // Compat: clients take any number but 0 for true. A client that compares it with the last one
  // sees that this is another process.
  answer(of, mp::encode_uint(options_.boot_number));
}

void mp_door::serve(job of, mp::clear_request& request) {
  calls_.ask<void>(options_.engine.manager, clear_objects{request.force}, answer_deadline,
                   [this, of = std::move(of)](io_reply<void>& reply) mutable {
                     reply ? answer_void(of) : refuse(of);
                   });
}

void mp_door::serve(job of, mp::lookup_request& request) {
  auto& key = request.key;
  key.token_ids.resize(std::min<uint64_t>(key.token_ids.size(), key.end));
  lookup_prompt wanted{of.client,
                       std::move(key.model_name),
                       key.world_size,
                       std::move(key.cache_salt),
                       std::move(key.request_id),
                       std::move(key.token_ids),
                       key.num_kv_readers};
  calls_.ask<void>(sessions_, std::move(wanted), answer_deadline,
                   [this, of = std::move(of)](io_reply<void>& reply) mutable {
                     reply ? answer_void(of) : refuse(of);
                   });
}

void mp_door::serve(job of, mp::query_prefetch_status_request& request) {
  calls_.ask<lookup_result>(sessions_, take_lookup_result{std::move(request.request_id), false},
                            answer_deadline,
                            [this, of = std::move(of)](io_reply<lookup_result>& reply) mutable {
                              if (!reply)
                                refuse(of);
                              else if (reply.value.running)
                                answer_void(of);
                              else
                                answer(of, mp::encode_uint(reply.value.chunks));
                            });
}

void mp_door::serve(job of, mp::wait_prefetch_status_request& request) {
  auto wait = std::chrono::duration<double>{std::clamp(
    request.timeout_seconds, 0.0, std::chrono::duration<double>{longest_wait}.count())};
  calls_.ask<lookup_result>(sessions_, take_lookup_result{std::move(request.request_id), true},
                            std::chrono::duration_cast<io_unit::clock::duration>(wait),
                            [this, of = std::move(of)](io_reply<lookup_result>& reply) mutable {
                              if (reply)
                                answer(of, mp::encode_uint(reply.value.chunks));
                              else if (reply.error() == errc::timed_out)
                                answer_void(of);
                              else
                                refuse(of);
                            });
}

void mp_door::serve(job of, mp::free_lookup_locks_request& request) {
  auto readers = request.key.num_kv_readers;
  free_lookup wanted{range_of(std::move(request.key)), readers};
  calls_.ask<void>(sessions_, std::move(wanted), answer_deadline,
                   [this, of = std::move(of)](io_reply<void>&) mutable { answer_void(of); });
}

void mp_door::serve(job of, mp::end_session_request& request) {
  calls_.ask<void>(sessions_, end_session{std::move(request.request_id)}, answer_deadline,
                   [this, of = std::move(of)](io_reply<void>&) mutable { answer_void(of); });
}

/// Compat: for observation only.
void mp_door::serve(job of, mp::report_block_allocation_request&) {
  answer_void(of);
}

// -- instances --------------------------------------------------------------------------

void mp_door::serve(job of, mp::register_request& request) {
  auto layout = request.layout(options_.chunk_size);
  if (!layout
      || (instances_.count(request.instance_id) == 0
          && instances_.size() >= options_.max_instances)) {
    counters_.add(mp_count::registrations_refused);
    log::write_limited(
      log::level::warn, "an instance could not register",
      {{"model", request.model_name},
       {"cause", layout ? "too many instances" : system_.render(layout.error())}});
    fail(of);
    return;
  }
  auto [i, is_new] = instances_.try_emplace(request.instance_id);
  auto& who = i->second;
  if (is_new) {
    who.actor = system_.spawn<engine>(request.instance_id, sessions_, options_.engine);
    unit_.run_inline(who.actor);
  }
  who.client = of.client;
  who.attach_known = segment_watch_ == nullptr;
  if (segment_watch_) {
    segment_watch_->update();
    who.opens_before = segment_watch_->opens();
  }
  std::erase(refused_, request.instance_id);
  auto number = request.instance_id;
  register_engine wanted{
    std::move(request.model_name), request.world_size, *layout, {}, of.client};
  // Who it is takes a look into /proc; the descriptor may be closed and used again meanwhile.
  auto fd = fcntl(of.request.fd, F_DUPFD_CLOEXEC, 0);
  auto shared = std::make_shared<job>(std::move(of));
  auto go_on = [this, number, shared, wanted](process_id process) mutable {
    wanted.process = process;
    register_instance(std::move(*shared), number, std::move(wanted));
  };
  auto accepted
    = fd >= 0 && workers_.submit(worker_pool::priority::copy, [this, fd, go_on]() mutable {
        auto process = peer_of_socket(fd).value_or(process_id{});
        ::close(fd);
        unit_.post([go_on = std::move(go_on), process]() mutable { go_on(process); });
      });
  if (!accepted)
    go_on({});
}

void mp_door::register_instance(job of, uint64_t number, register_engine wanted) {
  auto i = instances_.find(number);
  if (i == instances_.end()) {
    fail(of);
    return;
  }
  auto layout = wanted.layout;
  calls_.ask<void>(i->second.actor, std::move(wanted), answer_deadline,
                   [this, number, layout, of = std::move(of)](io_reply<void>& reply) mutable {
                     on_registered(std::move(of), number, layout, reply.error());
                   });
}

void mp_door::on_registered(job of, uint64_t number, const mp::kv_layout& layout,
                            const caf::error& failure) {
  auto i = instances_.find(number);
  if (failure || i == instances_.end()) {
    counters_.add(mp_count::registrations_refused);
    log::write_limited(log::level::warn, "an instance could not register",
                       {{"cause", system_.render(failure)}});
    fail(of);
    return;
  }
  counters_.add(mp_count::registrations);
  i->second.layout = layout;
  {
    std::lock_guard guard{engines_mutex_};
    engines_.insert_or_assign(number, i->second.actor);
  }
  answer(of, mp::encode_registration(options_.pool_name,
                                     options_.pool_name.empty() ? 0 : options_.pool_bytes));
}

void mp_door::serve(job of, mp::unregister_request& request) {
  auto i = instances_.find(request.instance_id);
  if (i == instances_.end()) {
    answer_void(of);
    return;
  }
  auto actor = i->second.actor;
  remove_instance(request.instance_id);
  calls_.ask<void>(actor, unregister_engine{}, answer_deadline,
                   [this, of = std::move(of), actor](io_reply<void>&) mutable {
                     unit_.forget_inline(actor);
                     answer_void(of);
                   });
}

void mp_door::remove_instance(uint64_t number) {
  instances_.erase(number);
  std::lock_guard guard{engines_mutex_};
  engines_.erase(number);
}

void mp_door::look_after(uint64_t number) {
  auto i = instances_.find(number);
  if (i == instances_.end())
    return;
  auto actor = i->second.actor;
  if (!clients_.connected(i->second.client))
    unit_.send(actor, engine_disconnected{});
  calls_.ask<liveness>(actor, check_liveness{}, answer_deadline,
                       [this, number, actor](io_reply<liveness>& reply) {
                         if (reply && reply.value.wants_fence)
                           fence_if_gone(actor, reply.value.process);
                         if (!reply || !reply.value.forgotten)
                           return;
                         auto now = instances_.find(number); // Perhaps a later actor's.
                         if (now != instances_.end() && now->second.actor == actor)
                           remove_instance(number);
                         unit_.forget_inline(actor);
                       });
}

/// Reads /proc, which takes its time: not on this thread.
void mp_door::fence_if_gone(const engine_actor& actor, process_id process) {
  workers_.submit(worker_pool::priority::hash, [actor, process, segment = options_.pool_name] {
    if (maps_segment(process, segment) != mapping_state::yes)
      caf::anon_send(actor, fence_engine{});
  });
}

} // namespace kvasir
