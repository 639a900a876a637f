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

/// What is told about chunks that the engine copies itself.
std::vector<mp::slot_descriptor> descriptors(const std::vector<slot>& slots) {
  std::vector<mp::slot_descriptor> result;
  for (auto& where : slots)
    result.push_back({where.offset_bytes, where.size_bytes});
  return result;
}

} // namespace

bool mp_door::take_inline_bytes(uint64_t bytes) {
  auto before = inline_bytes_->fetch_add(bytes);
  // One that exceeds the limit by itself may go alone.
  if (before == 0 || before + bytes <= options_.max_inline_bytes)
    return true;
  inline_bytes_->fetch_sub(bytes);
  counters_.add(mp_count::refused_inline);
  return false;
}

// -- storing ----------------------------------------------------------------------------

void mp_door::serve(job of, mp::prepare_store_request& request) {
  auto actor = engine_of(of, request.instance_id);
  if (!actor)
    return;
  if (!request.key.worker_id) {
    refuse(of);
    return;
  }
  auto layout = instances_.at(request.instance_id).layout;
  calls_.ask<store_plan>(
    actor, prepare_store{to_range(std::move(request.key))}, answer_deadline,
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
      answer(of, mp::encode_store_slots(descriptors(slots), indices, layout));
    });
}

void mp_door::serve(job of, mp::commit_store_request& request) {
  auto actor = engine_of(of, request.instance_id);
  if (!actor)
    return;
  if (!request.key.worker_id) {
    refuse(of);
    return;
  }
  if (!request.data.empty()) {
    store_inline(std::move(of), actor, request);
    return;
  }
  calls_.ask<store_result>(actor, commit_store{to_range(std::move(request.key))},
                           answer_deadline,
                           [this, of = std::move(of)](io_reply<store_result>& reply) mutable {
                             if (!reply) {
                               refuse(of);
                               return;
                             }
                             answer(of, mp::encode_bool(reply.value.stored));
                             hash_later(std::move(reply.value.unsealed));
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
  begin_inline_store wanted{to_range(std::move(request.key)), {}};
  std::vector<std::span<const std::byte>> chunks;
  for (auto& tensor : *tensors) {
    auto dims = tensor.shape.dims();
    wanted.chunks.push_back({tensor.dtype, {dims.begin(), dims.end()}});
    chunks.push_back(request.data.subspan(tensor.offset_bytes, tensor.size_bytes));
  }
  auto bytes = request.data.size();
  if (!take_inline_bytes(bytes)) {
    refuse(of);
    return;
  }
  calls_.ask<inline_store_plan>(
    actor, std::move(wanted), answer_deadline,
    [this, actor, bytes, chunks = std::move(chunks),
     of = std::move(of)](io_reply<inline_store_plan>& reply) mutable {
      if (!reply || reply.value.transfer_id == 0) {
        inline_bytes_->fetch_sub(bytes);
        reply ? answer(of, mp::encode_bool(reply.value.stored)) : refuse(of);
        return;
      }
      copy_inline(std::move(of), actor, std::move(reply.value), std::move(chunks));
    });
}

void mp_door::copy_inline(job of, const engine_actor& actor, inline_store_plan plan,
                          std::vector<std::span<const std::byte>> chunks) {
  std::vector<chunk_copy_in> copies;
  for (auto& chunk : plan.slots)
    copies.push_back({chunks[chunk.index], chunk.lease, chunk.where});
  // A std::function must be copyable, a request is not.
  auto shared = std::make_shared<job>(std::move(of));
  auto finish = [this, shared, actor, id = plan.transfer_id](std::vector<finish_write> writes) {
    inline_bytes_->fetch_sub(shared->request.arguments.back().size());
    for (auto& frame : shared->request.arguments)
      frame.rebuild();
    calls_.ask<store_result>(actor, finish_inline_store{id, std::move(writes)}, answer_deadline,
                             [this, shared](io_reply<store_result>& reply) {
                               reply ? answer(*shared, mp::encode_bool(reply.value.stored))
                                     : refuse(*shared);
                             });
  };
  for (auto& copy : copies)
    counters_.add(mp_count::inline_bytes_in, copy.from.size());
  auto accepted = workers_.submit(
    worker_pool::urgency::waited_for,
    [this, finish, copies = std::move(copies)] {
      unit_.post([finish, writes = copy_in(options_.pool, copies)] { finish(writes); });
    });
  if (!accepted)
    finish({});
}

void mp_door::hash_later(std::vector<read_lease> unsealed) {
  if (unsealed.empty())
    return;
  auto shared = std::make_shared<std::vector<read_lease>>(std::move(unsealed));
  auto accepted = workers_.submit(worker_pool::urgency::background, [this, shared] {
    caf::anon_send(options_.engine.manager, seal_chunks{hash_chunks(options_.pool, *shared)});
  });
  if (accepted)
    return;
  counters_.add(mp_count::unsealed_chunks, shared->size());
  end_leases unhashed;
  for (auto& lease : *shared)
    unhashed.leases.push_back(lease.id);
  unit_.send(options_.engine.manager, std::move(unhashed));
}

// -- retrieving -------------------------------------------------------------------------

/// Nobody says whether an engine could map the pool. It opens the segment right after it was
/// told the name; if nothing opened it until the first retrieve, it could not.
void mp_door::learn_attachment(instance& who) {
  if (std::exchange(who.attach_known, true))
    return;
  segment_watch_->update();
  unit_.send(who.actor, attach_seen{segment_watch_->opens() > who.opens_before});
}

void mp_door::serve(job of, mp::prepare_retrieve_request& request) {
  auto actor = engine_of(of, request.instance_id);
  if (!actor)
    return;
  if (!request.key.worker_id) {
    refuse(of);
    return;
  }
  auto& who = instances_.at(request.instance_id);
  learn_attachment(who);
  calls_.ask<retrieve_plan>(
    actor, prepare_retrieve{to_range(std::move(request.key))}, answer_deadline,
    [this, actor, layout = who.layout,
     of = std::move(of)](io_reply<retrieve_plan>& reply) mutable {
      if (!reply || !reply.value.success) {
        refuse(of);
        return;
      }
      if (reply.value.transfer_id != 0) {
        retrieve_inline(std::move(of), actor, layout, std::move(reply.value));
        return;
      }
      answer(of, mp::encode_retrieve_slots(slots_of(reply.value), layout));
    });
}

void mp_door::serve(job of, mp::commit_retrieve_request& request) {
  auto actor = engine_of(of, request.instance_id);
  if (!actor)
    return;
  calls_.ask<void>(actor, commit_retrieve{to_range(std::move(request.key))}, answer_deadline,
                   [this, of = std::move(of)](io_reply<void>&) mutable {
                     // Compat: true also without a prepare.
                     answer(of, mp::encode_bool(true));
                   });
}

} // namespace kvasir
