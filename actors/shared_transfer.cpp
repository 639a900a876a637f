#include "actors/shared_transfer.hpp"

#include "actors/handover.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

shared_transfer::shared_transfer(transfer_books& books, inline_transfer& fallback)
  : books_(books),
    fallback_(fallback),
    owner_(next_owner_id()) {}

// -- what was handed out ----------------------------------------------------------------

bool shared_transfer::over_limit(uint64_t more_bytes) const {
  return handed_out_bytes_ + asked_bytes_ + more_bytes > books_.options->max_handed_out_bytes;
}

uint64_t shared_transfer::add(pending_table& to, const std::string& id,
                              std::vector<lease_id> leases, uint64_t bytes) {
  ++(&to == &writes_ ? write_count_ : read_count_);
  handed_out_bytes_ += bytes;
  to[id].transfers.push_back({++last_number_, std::move(leases), bytes, false});
  return last_number_;
}

void shared_transfer::strike(const pending_table& from, const pending& taken) {
  write_ends_.erase(taken.number);
  --(&from == &writes_ ? write_count_ : read_count_);
  handed_out_bytes_ -= taken.bytes;
  quarantined_bytes_ -= taken.expired ? taken.bytes : 0;
}

std::vector<shared_transfer::pending> shared_transfer::commit(pending_table& from,
                                                              const std::string& id) {
  auto i = from.find(id);
  if (i == from.end() || ++i->second.commits < i->second.transfers.size())
    return {};
  return take(from, id);
}

std::vector<shared_transfer::pending> shared_transfer::take(pending_table& from,
                                                            const std::string& id) {
  auto group = from.extract(id);
  if (group.empty())
    return {};
  for (auto& each : group.mapped().transfers)
    strike(from, each);
  return std::move(group.mapped().transfers);
}

std::vector<shared_transfer::pending>
shared_transfer::take(pending_table& from, const std::string& id, uint64_t number) {
  auto i = from.find(id);
  if (i == from.end())
    return {};
  auto& group = i->second;
  auto one = std::find_if(group.transfers.begin(), group.transfers.end(),
                          [&](auto& each) { return each.number == number; });
  if (one == group.transfers.end())
    return {};
  if (group.transfers.size() == group.commits + 1) // The others have their commits.
    return take(from, id);
  std::vector<pending> taken{std::move(*one)};
  group.transfers.erase(one);
  strike(from, taken.front());
  return taken;
}

void shared_transfer::end(const std::vector<pending>& taken) {
  std::vector<lease_id> leases;
  for (auto& each : taken)
    leases.insert(leases.end(), each.leases.begin(), each.leases.end());
  end(std::move(leases));
}

void shared_transfer::end(std::vector<lease_id> leases) {
  if (!leases.empty())
    books_.self->send(books_.options->manager, end_leases{std::move(leases)});
}

void shared_transfer::expire(bool all) {
  auto now = books_.self->clock().now();
  expire_writes expired;
  while (!write_ends_.empty() && (all || write_ends_.begin()->second.at <= now)) {
    auto ended = write_ends_.extract(write_ends_.begin());
    for (auto& entry : writes_.at(ended.mapped().id).transfers)
      if (entry.number == ended.key()) {
        entry.expired = true;
        ++books_.counters.expired_writes;
        quarantined_bytes_ += entry.bytes;
        expired.leases.insert(expired.leases.end(), entry.leases.begin(), entry.leases.end());
      }
  }
  if (!expired.leases.empty())
    books_.self->send(books_.options->manager, std::move(expired));
}

void shared_transfer::fence() {
  books_.self->send(books_.options->manager, end_owner{owner_});
  owner_ = next_owner_id();
  writes_.clear();
  reads_.clear();
  write_ends_.clear();
  write_count_ = read_count_ = 0;
  handed_out_bytes_ = quarantined_bytes_ = 0;
}

// -- storing ----------------------------------------------------------------------------

void shared_transfer::prepare_store(transfer_job job,
                                    caf::typed_response_promise<store_plan> answer) {
  auto asked = job.chunks.keys.size() * books_.chunk_bytes;
  if (over_limit(asked)) {
    ++books_.counters.over_limit;
    answer.deliver(store_plan{transfer::inline_data, {}});
    return;
  }
  asked_bytes_ += asked;
  reserve_chunks wanted{owner_, job.tenant, books_.stored_as, books_.chunk_bytes, {}};
  auto parent = std::move(job.chunks.parent);
  for (auto& key : job.chunks.keys) {
    wanted.chunks.push_back({key, parent});
    parent = key;
  }
  books_.self->request(books_.options->manager, caf::infinite, std::move(wanted))
    .then(
      [this, id = std::move(job.id), owner = owner_, asked, chunk_bytes = books_.chunk_bytes,
       answer](const chunk_reservations& reserved) mutable {
        handover_scope scope{books_.self};
        asked_bytes_ -= asked;
        if (owner != owner_) { // Fenced meanwhile: these leases are gone.
          answer.deliver(caf::make_error(errc::not_found));
          return;
        }
        store_plan plan;
        std::vector<lease_id> leases;
        bool refused = false;
        for (uint32_t i = 0; i < reserved.chunks.size(); ++i) {
          auto& chunk = reserved.chunks[i];
          refused = refused || chunk.state == chunk_state::no_room;
          books_.counters.no_room += chunk.state == chunk_state::no_room ? 1 : 0;
          if (chunk.state != chunk_state::reserved)
            continue;
          plan.slots.push_back({i, chunk.lease.id, chunk.lease.where});
          leases.push_back(chunk.lease.id);
        }
        // Compat: a client takes an empty list for success. Out of memory must not look so: it
        // is sent to its commit, which fails.
        plan.how = !leases.empty() ? transfer::shared
                   : refused       ? transfer::inline_data
                                   : transfer::none;
        if (!leases.empty()) {
          auto bytes = leases.size() * chunk_bytes;
          auto number = add(writes_, id, std::move(leases), bytes);
          write_ends_.emplace(
            number, write_end{books_.self->clock().now() + books_.options->write_ttl, id});
        }
        answer.deliver(std::move(plan));
      },
      [this, answer, asked](caf::error& failure) mutable {
        handover_scope scope{books_.self};
        asked_bytes_ -= asked;
        answer.deliver(std::move(failure));
      });
}

void shared_transfer::commit_store(transfer_job job,
                                   caf::typed_response_promise<store_outcome> answer) {
  expire(false);
  std::vector<finish_write> writes;
  std::vector<lease_id> late;
  for (auto& each : commit(writes_, job.id)) {
    if (each.expired)
      late.insert(late.end(), each.leases.begin(), each.leases.end());
    else
      for (auto id : each.leases)
        writes.push_back({id, 0});
  }
  books_.counters.late_commits += late.empty() ? 0 : 1;
  end(std::move(late));
  if (writes.empty()) {
    ++books_.counters.stores_failed;
    answer.deliver(store_outcome{});
    return;
  }
  attached_ = true; // It wrote into its slots.
  publish(books_, std::move(job), std::move(writes), next_owner_id(), std::move(answer));
}

void shared_transfer::cancel_store(const std::string& id) {
  end(take(writes_, id));
}

// -- retrieving -------------------------------------------------------------------------

void shared_transfer::prepare_retrieve(transfer_job job,
                                       caf::typed_response_promise<retrieve_plan> answer) {
  auto spent = std::move(job.chunks.spent);
  auto chunk_bytes = books_.chunk_bytes;
  auto asked = job.chunks.keys.size() * chunk_bytes;
  if (over_limit(asked)) {
    ++books_.counters.over_limit;
    ++books_.counters.retrieves_failed;
    answer.deliver(retrieve_plan{});
  } else {
    asked_bytes_ += asked;
    books_.self
      ->request(books_.options->manager, caf::infinite, acquire_chunks{owner_, job.chunks.keys})
      .then(
        [this, job = std::move(job), owner = owner_, asked, chunk_bytes,
         answer](chunks_acquired& acquired) mutable {
          handover_scope scope{books_.self};
          asked_bytes_ -= asked;
          if (owner != owner_) { // Fenced meanwhile: these leases are gone.
            answer.deliver(caf::make_error(errc::not_found));
            return;
          }
          on_acquired(std::move(job), acquired, chunk_bytes, std::move(answer));
        },
        [this, answer, asked](caf::error&) mutable {
          handover_scope scope{books_.self};
          asked_bytes_ -= asked;
          ++books_.counters.retrieves_failed;
          answer.deliver(retrieve_plan{});
        });
  }
  // After the question: what the lookup held is held by the retrieve before it is let go.
  if (!spent.empty())
    books_.self->send(books_.options->manager, end_leases{std::move(spent)});
}

void shared_transfer::on_acquired(transfer_job job, chunks_acquired& acquired,
                                  uint64_t chunk_bytes,
                                  caf::typed_response_promise<retrieve_plan> answer) {
  std::vector<lease_id> leases;
  for (auto& lease : acquired.leases)
    leases.push_back(lease.id);
  auto bytes = leases.size() * chunk_bytes;
  auto number = add(reads_, job.id, std::move(leases), bytes);
  if (!attached_) {
    // The fallback's leases are its own: its copies go on whatever the engine does. If it finds
    // a chunk gone, no commit will follow.
    auto id = job.id;
    fallback_.prepare_retrieve_with_slots(
      std::move(job), [this, id, number] { end(take(reads_, id, number)); }, std::move(answer));
    return;
  }
  ++books_.counters.retrieves;
  books_.counters.retrieve_bytes += bytes;
  retrieve_plan plan;
  plan.success = true;
  plan.give_slots = true;
  plan.chunks = std::move(acquired.leases);
  answer.deliver(std::move(plan));
}

void shared_transfer::commit_retrieve(const transfer_job& job) {
  end(commit(reads_, job.id));
}

} // namespace kvasir
