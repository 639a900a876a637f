// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/storage_engines.hpp"

/// What clients do with the chunks of prompts: as engines, and worse.
namespace kvasir::test {

inline void storage_world::act_on_chunks(size_t who) {
  auto& self = clients_[who];
  auto dice = between(0, 19);
  if (dice < 4)
    claim_chunks(who);
  else if (dice < 6 && !self.chunks.empty())
    write_piece(self.chunks[random_() % self.chunks.size()]);
  else if (dice < 7 && !self.expired.empty()) // Frozen writers wake up.
    write_all(self.expired[random_() % self.expired.size()]);
  else if (dice < 11)
    finish_some_chunks(who);
  else if (dice < 13)
    end_some_chunks(who);
  else if (dice < 14)
    seal_some_chunks(who);
  else if (dice < 17)
    send(who, hold_prefix{self.owner, one_in(20) ? 0 : static_cast<uint32_t>(between(1, 2)),
                          any_chunks()});
  else if (dice < 19)
    send(who, acquire_chunks{self.owner, any_chunks(), one_in(2)});
  else if (one_in(2))
    send(who, get_quotas{});
  else
    send(who, set_quota{any_tenant(),
                        one_in(2) ? 0 : between(0, pages_) * slot_allocator::page_bytes});
}

/// Chunks of one prompt, mostly from its beginning.
inline std::vector<object_key> storage_world::any_chunks() {
  auto prompt = between(0, 2);
  auto first = one_in(4) ? between(0, 3) : 0;
  std::vector<object_key> result;
  for (auto n = between(0, 5); n > 0; --n)
    result.push_back(chunk_key(prompt, one_in(30) ? between(0, 5) : first++));
  return result;
}

inline void storage_world::claim_chunks(size_t who) {
  reserve_chunks claim{clients_[who].owner, any_tenant(), any_layout(), any_size(), {}};
  object_key parent;
  for (auto& key : any_chunks())
    claim.chunks.push_back({key, std::exchange(parent, key)});
  send(who, std::move(claim));
}

inline void storage_world::write_all(open_write& write) {
  for (uint64_t i = 0; i < page_count(write.lease.where); ++i)
    memory_[first_page(write.lease.where) + i] = write.tag;
  write.written_pages = page_count(write.lease.where);
}

inline void storage_world::finish_some_chunks(size_t who) {
  auto& self = clients_[who];
  finish_chunks request;
  request.reader = one_in(2) ? self.owner : 0;
  for (auto n = between(0, 4); n > 0; --n) {
    auto& from = one_in(4) ? self.expired : self.chunks;
    if (from.empty())
      continue;
    auto write = pick(from);
    write_all(write);
    request.writes.push_back({write.lease.id, request.reader == 0 ? write.tag : 0});
    self.spent.push_back(write.lease.id);
  }
  request.asked = any_chunks();
  send(who, std::move(request));
}

inline void storage_world::end_some_chunks(size_t who) {
  auto& self = clients_[who];
  if (one_in(2)) {
    expire_writes request;
    while (!self.chunks.empty() && !one_in(3)) {
      self.expired.push_back(pick(self.chunks));
      request.leases.push_back(self.expired.back().lease.id);
    }
    return send(who, std::move(request));
  }
  end_leases request;
  auto end = [&](lease_id id) {
    request.leases.push_back(id);
    self.spent.push_back(id);
  };
  while (!self.prefix_holds.empty() && !one_in(4))
    end(pick(self.prefix_holds));
  if (!self.expired.empty() && one_in(2))
    end(pick(self.expired).lease.id);
  if (!self.chunks.empty() && one_in(2))
    end(pick(self.chunks).lease.id);
  if (!self.reads.empty() && one_in(2)) {
    auto read = pick(self.reads);
    verify(read);
    end(read.id);
  }
  send(who, std::move(request));
}

/// The bytes of a held chunk must all be of one writer, whoever that is.
inline uint64_t storage_world::hash(const read_lease& read) {
  auto result = page_count(read.where) == 0 ? 0 : memory_[first_page(read.where)];
  for (uint64_t i = 0; i < page_count(read.where); ++i)
    if (memory_[first_page(read.where) + i] != result)
      model_->fail("who hashes a chunk saw torn bytes");
  return result;
}

inline void storage_world::seal_some_chunks(size_t who) {
  auto& self = clients_[who];
  seal_chunks request;
  while (!self.unhashed.empty() && !one_in(3)) {
    auto held = pick(self.unhashed);
    request.holds.push_back({held.id, hash(held)});
    self.spent.push_back(held.id);
  }
  send(who, std::move(request));
}

inline void storage_world::end_spent_chunk(size_t who, lease_id id) {
  if (one_in(4))
    send(who, expire_writes{{id}});
  else if (one_in(3))
    send(who, end_leases{{id, id}});
  else if (one_in(2))
    send(who, seal_chunks{{{id, 1}}});
  else
    send(who, finish_chunks{{{id, 1}}, clients_[who].owner, {}});
}

inline void storage_world::receive_chunks(client_state& to, caf::message& answer) {
  if (answer.match_elements<chunk_reservations>()) {
    for (auto& chunk : answer.get_as<chunk_reservations>(0).chunks)
      if (chunk.state == chunk_state::reserved)
        to.chunks.push_back({chunk.lease, ++last_tag_, 0});
  } else if (answer.match_elements<chunks_finished>()) {
    for (auto& held : answer.get_as<chunks_finished>(0).holds)
      if (held.id != 0)
        to.unhashed.push_back(held);
  } else if (answer.match_elements<prefix_held>()) {
    for (auto id : answer.get_as<prefix_held>(0).leases)
      to.prefix_holds.push_back(id);
  } else if (answer.match_elements<chunks_acquired>()) {
    for (auto& held : answer.get_as<chunks_acquired>(0).leases) {
      to.reads.push_back(held);
      verify(held);
      hash(held);
    }
  }
}

/// One life of a storage manager.
inline storage_world::outcome simulate(uint64_t seed, fault planted = fault::none,
                                       uint64_t steps = 4000) {
  storage_world world{seed, planted};
  return world.run(steps);
}

} // namespace kvasir::test
