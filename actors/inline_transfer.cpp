#include "actors/inline_transfer.hpp"

#include "actors/handover.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

void describe(transfer_books& books, transfer_job& job) {
  if (books.options->observer)
    books.self->send(
      books.options->observer,
      describe_chunks{job.chunks.keys, job.chunks.parent, std::move(job.chunks.tokens)});
}

void publish(transfer_books& books, transfer_job job, std::vector<finish_write> writes,
             owner_id reader, caf::typed_response_promise<store_outcome> answer) {
  describe(books, job);
  auto written = writes.size();
  books.self
    ->request(books.options->manager, caf::infinite,
              finish_chunks{std::move(writes), reader, std::move(job.chunks.keys)})
    .then(
      [&books, answer, written](chunks_finished& done) mutable {
        handover_scope scope{books.self};
        auto& resident = done.resident;
        store_outcome result;
        result.stored = std::find(resident.begin(), resident.end(), 0) == resident.end();
        for (auto& hold : done.holds)
          if (hold.id != 0)
            result.unsealed.push_back(hold);
        ++(result.stored ? books.counters.stores : books.counters.stores_failed);
        books.counters.store_bytes += written * books.chunk_bytes;
        answer.deliver(std::move(result));
      },
      [&books, answer](caf::error& failure) mutable {
        handover_scope scope{books.self};
        answer.deliver(std::move(failure));
      });
}

inline_transfer::inline_transfer(transfer_books& books)
  : books_(books),
    owner_(next_owner_id()) {}

// -- storing ----------------------------------------------------------------------------

void inline_transfer::prepare_store(transfer_job,
                                    caf::typed_response_promise<store_plan> answer) {
  answer.deliver(store_plan{transfer::inline_data, {}});
}

void inline_transfer::commit_store(transfer_job,
                                   caf::typed_response_promise<store_outcome> answer) {
  ++books_.counters.stores_failed;
  answer.deliver(store_outcome{});
}

/// fp32 offered for fp16 is refused: a cast would silently lose what does not fit.
bool inline_transfer::fits(const inline_tensor& came) const {
  auto shape = books_.layout.shape();
  auto dims = shape.dims();
  return came.dtype == books_.layout.dtype
         && std::equal(dims.begin(), dims.end(), came.shape.begin(), came.shape.end());
}

void inline_transfer::begin_store(transfer_job job, const std::vector<inline_tensor>& came,
                                  caf::typed_response_promise<inline_store_plan> answer) {
  reserve_chunks wanted{owner_, job.tenant, books_.stored_as, books_.chunk_bytes, {}};
  auto parent = job.chunks.parent;
  for (auto& key : job.chunks.keys) {
    wanted.chunks.push_back({key, parent});
    parent = key;
  }
  // Now: the slots will be of this layout, even if another one is registered meanwhile.
  std::vector<bool> fitting;
  for (auto& tensor : came)
    fitting.push_back(fits(tensor));
  books_.self->request(books_.options->manager, caf::infinite, std::move(wanted))
    .then(
      [this, job = std::move(job), fitting = std::move(fitting),
       answer](chunk_reservations& reserved) mutable {
        handover_scope scope{books_.self};
        on_reserved(std::move(job), fitting, reserved, answer);
      },
      [this, answer](caf::error& failure) mutable {
        handover_scope scope{books_.self};
        answer.deliver(std::move(failure));
      });
}

void inline_transfer::on_reserved(transfer_job job, const std::vector<bool>& fitting,
                                  const chunk_reservations& reserved,
                                  caf::typed_response_promise<inline_store_plan>& answer) {
  inline_store_plan plan;
  end_leases unused;
  bool all_resident = true;
  for (uint32_t i = 0; i < reserved.chunks.size(); ++i) {
    auto& chunk = reserved.chunks[i];
    all_resident = all_resident && chunk.state == chunk_state::resident;
    books_.counters.no_room += chunk.state == chunk_state::no_room ? 1 : 0;
    if (chunk.state != chunk_state::reserved)
      continue;
    if (i < fitting.size() && fitting[i]) {
      plan.slots.push_back({i, chunk.lease.id, chunk.lease.where});
      continue;
    }
    ++(i < fitting.size() ? books_.counters.skipped_shape : books_.counters.skipped_missing);
    unused.leases.push_back(chunk.lease.id);
  }
  if (!unused.leases.empty())
    books_.self->send(books_.options->manager, std::move(unused));
  if (plan.slots.empty()) {
    plan.stored = all_resident;
    ++(all_resident ? books_.counters.stores : books_.counters.stores_failed);
  } else {
    plan.transfer_id = ++last_transfer_;
    stores_.emplace(plan.transfer_id, store{std::move(job), plan.slots});
  }
  answer.deliver(std::move(plan));
}

void inline_transfer::finish_store(const finish_inline_store& done,
                                   caf::typed_response_promise<store_outcome> answer) {
  auto node = stores_.extract(done.transfer_id);
  if (node.empty()) {
    answer.deliver(caf::make_error(errc::not_reserved));
    return;
  }
  auto& [job, slots] = node.mapped();
  end_leases failed;
  for (auto& slot : slots)
    if (std::none_of(done.writes.begin(), done.writes.end(),
                     [&](auto& write) { return write.id == slot.lease; }))
      failed.leases.push_back(slot.lease);
  if (!failed.leases.empty())
    books_.self->send(books_.options->manager, std::move(failed));
  publish(books_, std::move(job), done.writes, 0, std::move(answer));
}

// -- retrieving -------------------------------------------------------------------------

void inline_transfer::prepare_retrieve(transfer_job job,
                                       caf::typed_response_promise<retrieve_plan> answer) {
  acquire(
    std::move(job), false, [] {}, std::move(answer));
}

void inline_transfer::prepare_retrieve_with_slots(
  transfer_job job, std::function<void()> on_failure,
  caf::typed_response_promise<retrieve_plan> answer) {
  acquire(std::move(job), true, std::move(on_failure), std::move(answer));
}

void inline_transfer::acquire(transfer_job job, bool give_slots,
                              std::function<void()> on_failure,
                              caf::typed_response_promise<retrieve_plan> answer) {
  auto spent = std::move(job.chunks.spent);
  auto& self = *books_.self;
  self
    .request(books_.options->manager, caf::infinite,
             acquire_chunks{owner_, std::move(job.chunks.keys)})
    .then(
      [this, give_slots, answer](chunks_acquired& acquired) mutable {
        handover_scope scope{books_.self};
        retrieve_plan plan;
        plan.success = true;
        plan.give_slots = give_slots;
        plan.transfer_id = ++last_transfer_;
        auto& held = retrieves_[plan.transfer_id];
        for (auto& lease : acquired.leases)
          held.push_back(lease.id);
        plan.chunks = std::move(acquired.leases);
        ++books_.counters.retrieves;
        books_.counters.retrieve_bytes += plan.chunks.size() * books_.chunk_bytes;
        answer.deliver(std::move(plan));
      },
      [this, answer, on_failure = std::move(on_failure)](caf::error&) mutable {
        handover_scope scope{books_.self};
        on_failure();
        ++books_.counters.retrieves_failed;
        answer.deliver(retrieve_plan{});
      });
  // After the question: what the lookup held is held by the retrieve before it is let go.
  if (!spent.empty())
    self.send(books_.options->manager, end_leases{std::move(spent)});
}

void inline_transfer::finish_retrieve(const finish_inline_retrieve& done) {
  auto node = retrieves_.extract(done.transfer_id);
  if (node.empty())
    return;
  end_leases fine;
  for (auto id : node.mapped())
    if (std::find(done.corrupt.begin(), done.corrupt.end(), id) != done.corrupt.end())
      books_.self->send(books_.options->manager, release_read{id, true});
    else
      fine.leases.push_back(id);
  books_.self->send(books_.options->manager, std::move(fine));
}

} // namespace kvasir
