#include "actors/log.hpp"
#include "actors/mp_copies.hpp"
#include "actors/mp_job.hpp"
#include "messages/mp_reply.hpp"
#include "messages/tensor_pickle.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

/// The operations of the MP door that move chunks.
namespace kvasir {

namespace {

constexpr std::chrono::seconds answer_deadline{10};

/// Instances that are remembered as refused until they ping.
constexpr size_t max_refused = 1'024;

std::vector<slot> slots_of(const std::vector<read_lease>& leases) {
  std::vector<slot> result;
  for (auto& lease : leases)
    result.push_back(lease.where);
  return result;
}

uint64_t bytes_of(const std::vector<read_lease>& leases) {
  uint64_t result = 0;
  for (auto& lease : leases)
    result += lease.where.size_bytes;
  return result;
}

} // namespace

/// The engine that a transfer is for. Without one the transfer was refused.
engine_actor mp_door::engine_of(job& of, uint64_t number, const mp::cache_key& key) {
  auto i = instances_.find(number);
  if (i != instances_.end() && key.worker_id) {
    i->second.client = of.client;
    return i->second.actor;
  }
  if (i == instances_.end()) {
    counters_.add(mp_count::unknown_instances);
    if (std::find(refused_.begin(), refused_.end(), number) == refused_.end()) {
      refused_.push_back(number);
      if (refused_.size() > max_refused)
        refused_.pop_front();
    }
  }
  refuse(of);
  return {};
}

bool mp_door::take_inline_bytes(client_id client, uint64_t bytes) {
  if (inline_buffers_->take(client, bytes))
    return true;
  counters_.add(mp_count::refused_inline);
  return false;
}

void mp_door::answer_stored(job& of, bool stored) {
  counters_.add(stored ? mp_count::stores : mp_count::stores_failed);
  answer(of, mp::encode_bool(stored));
}

// -- storing ----------------------------------------------------------------------------

void mp_door::serve(job of, mp::prepare_store_request& request) {
  auto actor = engine_of(of, request.instance_id, request.key);
  if (!actor)
    return;
  auto layout = instances_.at(request.instance_id).layout;
  calls_.ask<store_plan>(
    actor, prepare_store{range_of(std::move(request.key))}, answer_deadline,
    [this, layout, of = std::move(of)](io_reply<store_plan>& reply) mutable {
      if (!reply) {
        refuse(of);
        return;
      }
      if (reply.value.how == transfer::inline_data) {
        answer(of, mp::encode_no_buffers());
        return;
      }
      std::vector<slot> slots;
      std::vector<uint32_t> indices;
      for (auto& chunk : reply.value.slots) {
        slots.push_back(chunk.where);
        indices.push_back(chunk.index);
      }
      answer(of, mp::encode_store_slots(slots, indices, layout));
    });
}

void mp_door::serve(job of, mp::commit_store_request& request) {
  auto actor = engine_of(of, request.instance_id, request.key);
  if (!actor)
    return;
  if (!request.data.empty()) {
    store_inline(std::move(of), actor, request);
    return;
  }
  calls_.ask<store_outcome>(actor, commit_store{range_of(std::move(request.key))},
                            answer_deadline,
                            [this, of = std::move(of)](io_reply<store_outcome>& reply) mutable {
                              if (!reply) {
                                refuse(of);
                                return;
                              }
                              answer_stored(of, reply.value.stored);
                              seal_later(std::move(reply.value.unsealed));
                            });
}

/// Parses only: the views point into the message, which `of` keeps.
void mp_door::store_inline(job of, const engine_actor& actor,
                           mp::commit_store_request& request) {
  auto tensors = mp::read_tensor_list(request.data);
  if (!tensors) {
    counters_.add(mp_count::rejected_payloads);
    log::write_limited(log::level::warn, "the data of an inline store was refused",
                       {{"cause", system_.render(tensors.error())}});
    refuse(of);
    return;
  }
  begin_inline_store wanted{range_of(std::move(request.key)), {}};
  std::vector<std::span<const std::byte>> chunks;
  for (auto& tensor : *tensors) {
    auto dims = tensor.shape.dims();
    wanted.chunks.push_back({tensor.dtype, {dims.begin(), dims.end()}});
    chunks.push_back(request.data.subspan(tensor.offset_bytes, tensor.size_bytes));
  }
  auto bytes = request.data.size();
  if (!take_inline_bytes(0, bytes)) {
    refuse(of);
    return;
  }
  calls_.ask<inline_store_plan>(
    actor, std::move(wanted), answer_deadline,
    [this, actor, bytes, chunks = std::move(chunks),
     of = std::move(of)](io_reply<inline_store_plan>& reply) mutable {
      if (!reply || reply.value.transfer_id == 0) {
        inline_buffers_->give_back(0, bytes);
        reply ? answer_stored(of, reply.value.stored) : refuse(of);
        return;
      }
      copy_inline(std::move(of), actor, std::move(reply.value), std::move(chunks), bytes);
    });
}

void mp_door::copy_inline(job of, const engine_actor& actor, inline_store_plan plan,
                          std::vector<std::span<const std::byte>> chunks, uint64_t bytes) {
  std::vector<chunk_copy_in> copies;
  unsealed_.moved(bytes);
  for (auto& chunk : plan.slots) {
    copies.push_back({chunks[chunk.index], chunk.lease, chunk.where});
    counters_.add(mp_count::inline_bytes_in, chunk.where.size_bytes);
  }
  // A std::function must be copyable, a request is not. It ends on this thread only: the worker
  // hands its reference back.
  auto shared = std::make_shared<job>(std::move(of));
  auto finish
    = [this, shared, actor, bytes, id = plan.transfer_id](std::vector<finish_write> writes) {
        inline_buffers_->give_back(0, bytes);
        calls_.ask<store_outcome>(actor, finish_inline_store{id, std::move(writes)},
                                  answer_deadline,
                                  [this, of = std::move(*shared)](auto& reply) mutable {
                                    reply ? answer_stored(of, reply.value.stored) : refuse(of);
                                  });
      };
  auto accepted = workers_.submit(
    worker_pool::priority::copy, [this, finish, copies = std::move(copies)]() mutable {
      unit_.post([finish = std::move(finish), writes = copy_in(options_.pool, copies)] {
        finish(writes);
      });
    });
  if (!accepted)
    finish({});
}

// -- checksums of what engines wrote ----------------------------------------------------

void mp_door::seal_later(std::vector<read_lease> unsealed) {
  if (unsealed.empty())
    return;
  if (!options_.verify_checksums) {
    end_holds(unsealed);
    return;
  }
  unsealed_.moved(bytes_of(unsealed));
  leave_unsealed(unsealed_.add(std::move(unsealed)));
  if (!seal_timer_.armed())
    unit_.arm(seal_timer_, seal_queue::tick_every);
}

void mp_door::on_seal_tick() {
  auto batch = std::make_shared<std::vector<read_lease>>(unsealed_.tick());
  if (!unsealed_.empty())
    unit_.arm(seal_timer_, seal_queue::tick_every);
  if (batch->empty())
    return;
  auto accepted = workers_.submit(worker_pool::priority::hash, [this, batch] {
    caf::anon_send(options_.engine.manager, seal_chunks{hash_chunks(options_.pool, *batch)});
    unit_.post([this, count = batch->size()] {
      counters_.add(mp_count::sealed_chunks, count);
      unsealed_.hashed();
    });
  });
  if (!accepted) {
    unsealed_.hashed();
    leave_unsealed(*batch);
  }
}

void mp_door::leave_unsealed(const std::vector<read_lease>& chunks) {
  counters_.add(mp_count::unsealed_chunks, chunks.size());
  end_holds(chunks);
}

void mp_door::end_holds(const std::vector<read_lease>& chunks) {
  if (chunks.empty())
    return;
  end_leases ended;
  for (auto& chunk : chunks)
    ended.leases.push_back(chunk.id);
  unit_.send(options_.engine.manager, std::move(ended));
}

// -- retrieving -------------------------------------------------------------------------

/// Nobody says whether an engine could map the pool. It opens the segment right after it was
/// told the name; if nothing opened it until the first retrieve, it could not.
void mp_door::learn_attachment(instance& who) {
  if (std::exchange(who.attach_known, true))
    return;
  if (!segment_watch_)
    return;
  segment_watch_->update();
  unit_.send(who.actor, attach_seen{segment_watch_->opens() > who.opens_before});
}

void mp_door::serve(job of, mp::prepare_retrieve_request& request) {
  auto actor = engine_of(of, request.instance_id, request.key);
  if (!actor)
    return;
  auto& who = instances_.at(request.instance_id);
  learn_attachment(who);
  calls_.ask<retrieve_plan>(
    actor, prepare_retrieve{range_of(std::move(request.key))}, answer_deadline,
    [this, actor, layout = who.layout,
     of = std::move(of)](io_reply<retrieve_plan>& reply) mutable {
      if (!reply || !reply.value.success) {
        refuse(of);
        return;
      }
      unsealed_.moved(bytes_of(reply.value.chunks));
      if (reply.value.transfer_id != 0) {
        retrieve_inline(std::move(of), actor, layout, std::move(reply.value));
        return;
      }
      counters_.add(mp_count::retrieves);
      answer(of, mp::encode_retrieve_slots(slots_of(reply.value.chunks), layout));
    });
}

/// One frame takes one copy: msgpack's head, then pickle's pieces with the chunks in between.
void mp_door::retrieve_inline(job of, const engine_actor& actor, const mp::kv_layout& layout,
                              retrieve_plan plan) {
  auto give_up = [&] {
    unit_.send(actor, finish_inline_retrieve{plan.transfer_id, {}});
    refuse(of);
  };
  auto writer = mp::tensor_list_writer::make(layout.dtype, layout.shape(), plan.chunks.size());
  // The engine may be registered anew, and its layout not be known here yet.
  auto other_layout = [&](auto& chunk) {
    return chunk.where.size_bytes != writer->tensor_bytes();
  };
  if (!writer || std::any_of(plan.chunks.begin(), plan.chunks.end(), other_layout)) {
    give_up();
    return;
  }
  auto slots = plan.give_slots ? slots_of(plan.chunks) : std::vector<slot>{};
  auto frame = mp::encode_retrieve_data(writer->total_bytes(), slots, layout);
  if (!frame) {
    give_up();
    return;
  }
  auto bytes = frame->head.size() + writer->total_bytes() + frame->tail.size();
  auto client = of.client;
  if (!take_inline_bytes(client, bytes)) {
    give_up();
    return;
  }
  counters_.add(mp_count::inline_bytes_out, plan.chunks.size() * writer->tensor_bytes());
  struct transfer_state {
    job of;
    retrieve_plan plan;
    mp::tensor_list_writer writer;
    mp::retrieve_frame frame;
    zmq::message_t message;
    std::vector<lease_id> corrupt;
  };
  auto state = std::make_shared<transfer_state>(transfer_state{
    std::move(of), std::move(plan), std::move(*writer), std::move(*frame), {}, {}});
  auto finish = [this, state, actor] {
    unit_.send(actor, finish_inline_retrieve{state->plan.transfer_id, state->corrupt});
    counters_.add(mp_count::checksum_mismatches, state->corrupt.size());
    auto ended = std::move(state->of);
    if (state->message.size() == 0 || !state->corrupt.empty())
      refuse(ended);
    else {
      counters_.add(mp_count::retrieves);
      answer(ended, std::move(state->message));
    }
  };
  auto accepted = workers_.submit(
    worker_pool::priority::copy, [this, state, client, bytes, finish]() mutable {
      state->message = inline_buffers_->message(client, bytes);
      if (state->message.size() > 0)
        state->corrupt = fill_retrieve_frame(
          options_.pool, state->plan.chunks, state->writer, state->frame,
          static_cast<std::byte*>(state->message.data()), options_.verify_checksums);
      state = nullptr;
      unit_.post(std::move(finish));
    });
  if (!accepted) {
    inline_buffers_->give_back(client, bytes);
    finish();
  }
}

void mp_door::serve(job of, mp::commit_retrieve_request& request) {
  auto actor = engine_of(of, request.instance_id, request.key);
  if (!actor)
    return;
  calls_.ask<void>(actor, commit_retrieve{range_of(std::move(request.key))}, answer_deadline,
                   [this, of = std::move(of)](io_reply<void>&) mutable {
                     // Compat: true also without a prepare.
                     answer(of, mp::encode_bool(true));
                   });
}

} // namespace kvasir
