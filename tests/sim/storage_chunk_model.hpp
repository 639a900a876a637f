// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/storage_model.hpp"

/// What a storage manager must do with the chunks of prompts.
namespace kvasir::test {

// -- what a request does ----------------------------------------------------------------

inline void storage_model::handle(uint64_t, asked&, const expire_writes& what) {
  for (auto id : what.leases) {
    auto found = leases_.find(id);
    if (found != leases_.end() && found->second.what == kind::chunk)
      found->second.what = kind::expired;
    else
      ++counts_.unknown_leases;
  }
}

inline void storage_model::handle(uint64_t, asked& self, const finish_chunks& what) {
  for (auto& write : what.writes) {
    auto& published = self.published.emplace_back();
    auto found = leases_.find(write.id);
    if (found == leases_.end() || found->second.what == kind::write
        || found->second.what == kind::read) {
      ++counts_.unknown_leases;
      continue;
    }
    auto ended = found->second;
    leases_.erase(found);
    if (ended.what == kind::expired) {
      ++counts_.chunks_late;
      ++counts_.aborted_writes;
    } else if (readable_.contains(ended.key)) {
      ++counts_.chunks_redundant;
    } else {
      ++counts_.chunks_stored;
      stored object{ended.where, ended.layout, what.reader == 0 ? write.checksum : 0,
                    what.reader == 0};
      if (auto parent = readable_.find(ended.parent); parent != readable_.end())
        object.parent.emplace(parent->first, parent->second.where);
      readable_[ended.key] = object;
      published = ended;
    }
  }
}

inline void storage_model::handle(uint64_t, asked&, const seal_chunks& what) {
  for (auto& hashed : what.holds) {
    auto held = leases_.find(hashed.id);
    if (held == leases_.end() || held->second.what != kind::read)
      continue;
    auto found = readable_.find(held->second.key);
    if (found != readable_.end() && found->second.where == held->second.where
        && !found->second.sealed) {
      found->second.checksum = hashed.checksum;
      found->second.sealed = true;
    }
    leases_.erase(held);
  }
}

inline void storage_model::handle(uint64_t, asked& self, const hold_prefix& what) {
  self.must_fail = what.width == 0 || what.keys.size() % what.width != 0;
  self.expected = errc::invalid_argument;
}

inline void storage_model::handle(uint64_t, asked& self, const acquire_chunks& what) {
  if (what.prefix)
    return; // Never fails; `check` says how long it must be.
  uint64_t extra_bytes = 0;
  std::set<std::string> seen;
  for (auto& key : what.keys) {
    auto found = readable_.find(key.bytes);
    if (found == readable_.end()) {
      self.must_fail = true;
      self.expected = errc::not_found;
      ++counts_.misses;
    } else if (seen.insert(key.bytes).second && !is_held(found->second.where)) {
      extra_bytes += padded(found->second.where);
    }
  }
  if (!self.must_fail && extra_bytes > 0
      && held_bytes() + extra_bytes > options_.max_prefix_held_bytes) {
    self.must_fail = true;
    self.expected = errc::busy;
    ++counts_.rejected_busy;
  }
}

inline void storage_model::handle(uint64_t, asked&, const end_leases& what) {
  for (auto id : what.leases) {
    auto found = leases_.find(id);
    if (found == leases_.end()) {
      ++counts_.unknown_leases;
      continue;
    }
    counts_.aborted_writes += found->second.what != kind::read;
    leases_.erase(found);
  }
}

// -- what its answer must be ------------------------------------------------------------

inline void storage_model::check(asked& self, const reserve_chunks& what,
                                 caf::message& answer) {
  auto got = unwrap_checked<chunk_reservations>(self, answer);
  if (!got || got->chunks.size() != what.chunks.size())
    return fail("a claim was not answered chunk by chunk");
  auto refused = false;
  auto reserved = false;
  std::set<std::string> staged;
  for (auto& [id, open] : leases_)
    if (open.what == kind::chunk)
      staged.insert(open.key);
  for (size_t i = 0; i < what.chunks.size(); ++i) {
    auto& key = what.chunks[i].key.bytes;
    auto& chunk = got->chunks[i];
    auto known = readable_.contains(key);
    if (known && chunk.state != chunk_state::resident)
      missing_.insert(key);
    if (staged.contains(key) != (chunk.state == chunk_state::staged))
      fail("a chunk is staged twice, or called staged when it is not");
    switch (chunk.state) {
      case chunk_state::reserved:
        if (refused)
          fail("a chunk was reserved behind one that found no room");
        reserved = true;
        staged.insert(key);
        check_new(chunk.lease.where, what.size_bytes);
        add({what.owner, kind::chunk, key, chunk.lease.where, what.layout, 0,
             what.chunks[i].parent.bytes},
            chunk.lease.id);
        break;
      case chunk_state::resident:
        if (!known)
          fail("a chunk is called resident that is not readable");
        passed_.insert(key);
        break;
      case chunk_state::staged:
        break;
      case chunk_state::no_room:
        refused = true;
        ++counts_.chunks_no_room;
        break;
    }
  }
  uint64_t staged_bytes = 0;
  for (auto& [id, open] : leases_)
    if (open.what == kind::chunk || open.what == kind::expired)
      staged_bytes += padded(open.where);
  if (staged_bytes > options_.max_staged_bytes)
    fail("more is staged than may be");
  auto limit = limits_.find(what.tenant);
  if (!reserved || limit == limits_.end() || limit->second == 0)
    return;
  for (auto& each : tier_.quotas())
    if (each.tenant == what.tenant && each.used_bytes > limit->second)
      fail("a tenant got more than its limit");
}

inline void storage_model::check(asked& self, const finish_chunks& what, caf::message& answer) {
  auto got = unwrap_checked<chunks_finished>(self, answer);
  if (!got || got->holds.size() != what.writes.size())
    return fail("finished chunks were not answered one by one");
  check_existence(what.asked, got->resident);
  for (size_t i = 0; i < got->holds.size(); ++i) {
    auto& published = self.published[i];
    auto& held = got->holds[i];
    if ((held.id != 0) != (published && what.reader != 0))
      fail("a finished chunk is not held for its reader, or another is");
    if (held.id == 0)
      continue;
    if (held.where != published->where || held.sealed)
      fail("a reader got another chunk than was finished");
    add({what.reader, kind::read, published->key, held.where, held.layout, 0, {}, true},
        held.id);
  }
}

inline void storage_model::check(asked& self, const hold_prefix& what, caf::message& answer) {
  auto got = unwrap_checked<prefix_held>(self, answer);
  if (!got)
    return;
  const size_t width = what.width;
  const auto asked_chunks = what.keys.size() / width;
  auto held = held_bytes();
  size_t chunks = 0;
  for (auto cut = false; chunks < asked_chunks; ++chunks) {
    uint64_t extra_bytes = 0;
    for (auto i = chunks * width; i < (chunks + 1) * width && !cut; ++i) {
      auto found = readable_.find(what.keys[i].bytes);
      cut = found == readable_.end();
      if (!cut && !is_held(found->second.where))
        extra_bytes += padded(found->second.where);
    }
    if (!cut && extra_bytes > 0 && held + extra_bytes > options_.max_prefix_held_bytes) {
      cut = true;
      ++counts_.prefixes_cut;
    }
    if (cut)
      break;
    for (auto i = chunks * width; i < (chunks + 1) * width; ++i) {
      auto& object = readable_.at(what.keys[i].bytes);
      if (i >= got->leases.size())
        return fail("a prefix ended early");
      add({what.owner, kind::read, what.keys[i].bytes, object.where, object.layout,
           object.checksum},
          got->leases[i]);
    }
    held = held_bytes();
  }
  if (got->chunks != chunks || got->leases.size() != chunks * width)
    fail("a prefix is longer than what is there and may be held");
  ++counts_.prefix_lookups;
  counts_.prefix_chunks_asked += asked_chunks;
  counts_.prefix_chunks_held += chunks;
}

inline void storage_model::check(asked& self, const acquire_chunks& what,
                                 caf::message& answer) {
  auto got = unwrap_checked<chunks_acquired>(self, answer);
  if (!got) {
    if (!self.must_fail)
      fail("chunks were refused that are all there");
    return;
  }
  size_t acquired = 0;
  for (; acquired < what.keys.size(); ++acquired) {
    auto& key = what.keys[acquired].bytes;
    auto found = readable_.find(key);
    if (what.prefix) {
      if (found == readable_.end())
        break;
      if (!is_held(found->second.where)
          && held_bytes() + padded(found->second.where) > options_.max_prefix_held_bytes) {
        ++counts_.prefixes_cut;
        break;
      }
    }
    if (acquired == got->leases.size())
      return fail("not each chunk was acquired");
    auto& held = got->leases[acquired];
    if (found == readable_.end() || held.where != found->second.where
        || held.sealed != found->second.sealed || held.checksum != found->second.checksum
        || held.layout != found->second.layout)
      return fail("a read of chunks got something else than was stored");
    add({what.owner, kind::read, key, held.where, held.layout, held.checksum}, held.id);
  }
  if (got->leases.size() != acquired)
    return fail("more chunks were acquired than are there and may be held");
  if (!what.prefix) {
    counts_.hits += acquired;
    return;
  }
  ++counts_.prefix_lookups;
  counts_.prefix_chunks_asked += what.keys.size();
  counts_.prefix_chunks_held += acquired;
}

inline void storage_model::check(asked& self, const get_quotas&, caf::message& answer) {
  auto got = unwrap_checked<quota_list>(self, answer);
  if (!got)
    return fail("quotas were refused");
  uint64_t sum = 0;
  for (auto& each : got->tenants) {
    sum += each.used_bytes;
    if (each.limit_bytes != limits_[each.tenant])
      fail("a tenant has another limit than was set");
  }
  if (sum != tier_.usage().used_bytes)
    fail("the tenants' memory is not all that is used");
}

} // namespace kvasir::test
