// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/storage_manager.hpp"
#include "backends/memory_tier.hpp"
#include "backends/object_index_reader.hpp"
#include "backends/slot_allocator.hpp"
#include "messages/chunk_messages.hpp"
#include "messages/storage_messages.hpp"
#include "support/simulation.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace kvasir::test {

using storage_request
  = std::variant<reserve_write, finish_write, abort_write, acquire_read, release_read,
                 end_owner, check_exist, list_objects, remove_object, clear_objects,
                 check_pressure, get_storage_status, reserve_chunks, expire_writes,
                 finish_chunks, seal_chunks, hold_prefix, acquire_chunks, end_leases, set_quota,
                 get_quotas>;

/// What a storage manager must know and answer, written down as plainly as possible: a map of
/// what is readable and a map of who holds what. It learns of each request when the manager
/// takes it out of its mailbox, and of each answer while the manager gives it.
///
/// Two things it cannot foretell and takes from the tier: which objects were evicted, and
/// whether there was room.
class storage_model {
public:
  enum class kind { write, read, chunk, expired };

  struct lease {
    owner_id owner = 0;
    kind what = kind::write;
    std::string key;
    slot where;
    object_layout layout;
    uint64_t checksum = 0;
    std::string parent{}; ///< Of a chunk.
    bool hashing = false; ///< Held by who hashes it, not by a reader.
  };

  storage_model(const memory_tier& tier, const storage_manager_options& options)
    : tier_(tier),
      options_(options) {}

  /// The first thing that was wrong; empty so far.
  const std::string& failure() const { return failure_; }
  void fail(std::string what) {
    if (failure_.empty())
      failure_ = std::move(what);
  }

  void on_sent(uint64_t id, storage_request what) { requests_[id].what = std::move(what); }

  /// The manager is about to handle this request.
  void on_handled(uint64_t id) {
    auto& request = requests_.at(id);
    request.handled = true;
    std::visit([&](auto& what) { handle(id, request, what); }, request.what);
  }

  void on_answer(uint64_t id, caf::message answer) {
    auto found = requests_.find(id);
    if (found == requests_.end() || !found->second.handled)
      return fail("an answer to a request that was not made");
    auto& request = found->second;
    if (++request.answers > 1)
      return fail("a request was answered twice");
    waiting_.erase(id);
    std::visit([&](auto& what) { check(request, what, answer); }, request.what);
  }

  /// What an observer of the manager is told.
  void on_change(const object_change& change) {
    auto& key = change.key.bytes;
    if (!key.starts_with('\0'))
      fail("an observer was told of a value");
    if (change.stored == observed_.contains(key))
      fail("an observer was told what it knew already");
    change.stored ? (void)observed_.insert(key) : (void)observed_.erase(key);
    cleared_.erase(key);
  }

  // -- engines that read without asking (storage_engine_model.hpp) ------------------------

  void check_found(const object_key& key, object_index_reader::found answer,
                   const indexed_object& object, bool overflowed);
  void on_engine_hold(uint64_t id, const slot& where) { engine_holds_[id] = where; }
  void on_engine_release(uint64_t id) { engine_holds_.erase(id); }

  /// What must hold between any two messages.
  void check_invariants() {
    if (auto wrong = tier_.audit(); !wrong.empty())
      fail("audit: " + wrong);
    auto usage = tier_.usage();
    if (usage.used_bytes > usage.usable_bytes || usage.usable_bytes > usage.capacity_bytes)
      fail("more memory is used than there is");
    if (usage.published
        != usage.objects + usage.replaced + usage.evicted_objects + usage.removed)
      fail("published objects are neither there nor accounted for");
    learn_evictions(usage);
    check_slots(usage);
    check_observed();
  }

  /// After everybody was answered and every owner ended.
  void check_end() {
    for (auto& [id, request] : requests_)
      if (request.handled && request.answers != 1)
        return fail("request " + std::to_string(id) + " was never answered");
    if (!leases_.empty())
      fail("a lease outlived its owner");
    auto usage = tier_.usage();
    uint64_t readable = 0;
    for (auto& [key, object] : readable_)
      readable += padded(object.where);
    if (usage.used_bytes != readable)
      fail("memory leaked: " + std::to_string(usage.used_bytes) + " bytes are used, "
           + std::to_string(readable) + " readable");
    if (usage.held_bytes != 0 || usage.limbo_bytes != 0)
      fail("a hold is left over");
    if (!cleared_.empty())
      fail("an observer was never told of a clear");
  }

  bool all_answered() const { return waiting_.empty(); }

private:
  struct stored {
    slot where;
    object_layout layout;
    uint64_t checksum = 0;
    bool sealed = true;
    std::optional<std::pair<std::string, slot>> parent{}; ///< It had when it was published.
  };

  struct asked {
    storage_request what;
    bool handled = false;
    size_t answers = 0;
    errc expected{}; ///< The error it must get; 0: none, or one that depends on room.
    bool must_fail = false;
    bool found = false;                            ///< For `remove_object`.
    std::vector<std::optional<lease>> published{}; ///< For `finish_chunks`, one by one.
  };

  static uint64_t padded(const slot& where) {
    return slot_allocator::rounded_bytes(where.size_bytes);
  }

  // -- what a request does --------------------------------------------------------------

  std::optional<lease> take(asked& from, lease_id id, kind what) {
    auto found = leases_.find(id);
    if (found == leases_.end() || found->second.what != what) {
      from.must_fail = true;
      from.expected = errc::not_reserved;
      ++counts_.unknown_leases;
      return std::nullopt;
    }
    auto result = found->second;
    leases_.erase(found);
    return result;
  }

  void handle(uint64_t id, asked&, const reserve_write&) { waiting_.insert(id); }
  void handle(uint64_t id, asked&, const acquire_read&) { waiting_.insert(id); }

  void handle(uint64_t, asked& self, const finish_write& what) {
    if (auto ended = take(self, what.id, kind::write))
      readable_[ended->key] = {ended->where, ended->layout, what.checksum};
  }

  void handle(uint64_t, asked& self, const abort_write& what) {
    if (take(self, what.id, kind::write))
      ++counts_.aborted_writes;
  }

  void handle(uint64_t, asked& self, const release_read& what) {
    auto ended = take(self, what.id, kind::read);
    if (!ended || !what.corrupt)
      return;
    ++counts_.corrupt_objects;
    auto found = readable_.find(ended->key);
    if (found != readable_.end() && found->second.where == ended->where)
      readable_.erase(found);
  }

  void handle(uint64_t, asked&, const end_owner& what) {
    std::erase_if(leases_, [&](auto& entry) {
      auto mine = entry.second.owner == what.owner;
      counts_.aborted_writes += mine && entry.second.what != kind::read;
      return mine;
    });
    for (auto id : waiting_) {
      auto& other = requests_.at(id);
      auto write = std::get_if<reserve_write>(&other.what);
      auto read = std::get_if<acquire_read>(&other.what);
      if ((write != nullptr ? write->owner : read->owner) == what.owner) {
        other.must_fail = true;
        other.expected = errc::not_reserved;
      }
    }
  }

  void handle(uint64_t, asked& self, const remove_object& what) {
    self.found = readable_.erase(what.key.bytes) > 0;
  }

  void handle(uint64_t, asked&, const clear_objects& what) {
    std::erase_if(readable_, [&](auto& entry) {
      auto kept = !what.force && is_read(entry.second.where);
      if (!kept && entry.first.starts_with('\0'))
        cleared_.insert(entry.first);
      return !kept;
    });
  }

  // storage_chunk_model.hpp
  void handle(uint64_t, asked& self, const expire_writes& what);
  void handle(uint64_t, asked& self, const finish_chunks& what);
  void handle(uint64_t, asked& self, const seal_chunks& what);
  void handle(uint64_t, asked& self, const hold_prefix& what);
  void handle(uint64_t, asked& self, const acquire_chunks& what);
  void handle(uint64_t, asked& self, const end_leases& what);
  void handle(uint64_t, asked&, const set_quota& what) {
    limits_[what.tenant] = what.limit_bytes;
  }

  template <class Request> // All others change nothing.
  void handle(uint64_t, asked&, const Request&) {}

  // -- what its answer must be ----------------------------------------------------------

  template <class T>
  caf::expected<T> unwrap_checked(asked& self, caf::message& answer) {
    auto result = unwrap<T>(answer);
    if (!result && result.error().category() != caf::atom("kvasir"))
      fail("an answer of the wrong type, or an error of another category");
    if (self.must_fail && (result || result.error() != self.expected))
      fail("a request that had to fail got another answer");
    return result;
  }

  void must_be_ok(asked& self, caf::message& answer) {
    auto result = unwrap_checked<void>(self, answer);
    if (!result && !self.must_fail)
      fail("a request that had to succeed failed");
  }

  template <class Request>
  void check(asked& self, const Request&, caf::message& answer) {
    must_be_ok(self, answer);
  }

  void check(asked& self, const reserve_write& what, caf::message& answer) {
    auto got = unwrap_checked<write_lease>(self, answer);
    if (!got) {
      counts_.rejected_too_large += got.error() == errc::too_large;
      counts_.rejected_out_of_memory += got.error() == errc::out_of_memory;
      count_busy(got.error());
      return;
    }
    check_new(got->where, what.size_bytes);
    add({what.owner, kind::write, what.key.bytes, got->where, what.layout, 0}, got->id);
  }

  void check(asked& self, const acquire_read& what, caf::message& answer) {
    auto got = unwrap_checked<read_lease>(self, answer);
    auto found = readable_.find(what.key.bytes);
    if (!got) {
      counts_.misses += got.error() == errc::not_found;
      count_busy(got.error());
      if (got.error() == errc::not_found && found != readable_.end())
        missing_.insert(what.key.bytes);
      return;
    }
    ++counts_.hits;
    if (found == readable_.end() || got->where != found->second.where)
      return fail("a read found what is not readable");
    if (got->checksum != found->second.checksum || got->layout != found->second.layout)
      fail("a read got another checksum or layout than was stored");
    add({what.owner, kind::read, what.key.bytes, got->where, got->layout, got->checksum},
        got->id);
  }

  void check(asked& self, const remove_object&, caf::message& answer) {
    auto got = unwrap_checked<void>(self, answer);
    if (static_cast<bool>(got) != self.found)
      fail("remove did not say whether there was an object");
  }

  void check(asked& self, const check_exist& what, caf::message& answer) {
    auto got = unwrap_checked<exist_result>(self, answer);
    if (got)
      check_existence(what.keys, got->found);
    else
      fail("a question about existence was refused");
  }

  void check_existence(const std::vector<object_key>& keys, const std::vector<uint8_t>& found) {
    if (found.size() != keys.size())
      return fail("a question about existence was not answered key by key");
    for (size_t i = 0; i < keys.size(); ++i) {
      auto known = readable_.contains(keys[i].bytes);
      if (found[i] == 1 && !known)
        fail("a key exists that is not readable");
      if (found[i] == 0 && known)
        missing_.insert(keys[i].bytes);
    }
  }

  void check(asked& self, const list_objects&, caf::message& answer) {
    auto got = unwrap_checked<object_list>(self, answer);
    if (!got)
      return fail("a list was refused");
    for (auto& listed : got->objects)
      check_listed(listed);
  }

  void check(asked& self, const check_pressure&, caf::message& answer) {
    auto got = unwrap_checked<pressure>(self, answer);
    if (!got || got->requests_wait == waiting_.empty())
      fail("pressure was reported where none is, or not where it is");
  }

  void check(asked& self, const get_storage_status&,
             caf::message& answer); // storage_counts_model.hpp

  // storage_chunk_model.hpp
  void check(asked& self, const reserve_chunks& what, caf::message& answer);
  void check(asked& self, const finish_chunks& what, caf::message& answer);
  void check(asked& self, const hold_prefix& what, caf::message& answer);
  void check(asked& self, const acquire_chunks& what, caf::message& answer);
  void check(asked& self, const get_quotas& what, caf::message& answer);

  // -- bookkeeping ----------------------------------------------------------------------

  void count_busy(const caf::error& why) {
    if (why != errc::busy)
      return;
    ++counts_.rejected_busy;
    if (waiting_.size() < options_.max_waiting)
      fail("busy, although fewer than the limit wait");
  }

  void add(lease what, lease_id id) {
    if (!leases_.emplace(id, std::move(what)).second)
      fail("a lease id was given out twice");
  }

  void check_new(const slot& where, uint64_t size_bytes) {
    if (where.size_bytes != size_bytes || where.offset_bytes % 4096 != 0
        || where.offset_bytes + padded(where) > tier_.usage().usable_bytes)
      fail("a slot of the wrong size or place");
    if (!slots_seen_.insert({where.offset_bytes, where.generation}).second)
      fail("a slot was handed out again under the same generation");
  }

  bool is_read(const slot& where) const {
    return std::any_of(leases_.begin(), leases_.end(), [&](auto& entry) {
      auto& open = entry.second;
      return open.what == kind::read && !open.hashing && open.where == where;
    });
  }

  bool is_held(const slot& where) const {
    return std::any_of(leases_.begin(), leases_.end(), [&](auto& entry) {
      return entry.second.what == kind::read && entry.second.where == where;
    });
  }

  uint64_t held_bytes() const {
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> held;
    for (auto& [id, open] : leases_)
      if (open.what == kind::read)
        held[{open.where.offset_bytes, open.where.generation}] = padded(open.where);
    uint64_t result = 0;
    for (auto& entry : held)
      result += entry.second;
    return result;
  }

  void check_observed() {
    for (auto& [key, object] : readable_)
      if (key.starts_with('\0') && !observed_.contains(key))
        fail("an observer does not know a chunk");
    for (auto& key : observed_)
      if (!readable_.contains(key) && !cleared_.contains(key))
        fail("an observer knows a chunk that is gone");
  }

  void check_listed(const object_info& listed) {
    auto found = readable_.find(listed.key.bytes);
    if (found == readable_.end())
      fail("an object is listed that is not readable");
    else if (found->second.where.size_bytes != listed.size_bytes)
      fail("an object is listed with another size");
  }

  /// Whatever is readable by the books and not in the tier must have been evicted, and the
  /// tier must have counted just as many evictions.
  void learn_evictions(const tier_usage& usage) {
    std::set<std::string> present;
    uint64_t cursor = 0;
    do {
      auto slice = tier_.list(cursor);
      for (auto& listed : slice.objects) {
        check_listed(listed);
        if (!present.insert(listed.key.bytes).second)
          fail("an object is listed twice");
      }
      cursor = slice.next_cursor;
    } while (cursor != 0);
    for (auto& key : missing_)
      if (present.contains(key))
        fail("a readable object was reported missing");
    missing_.clear();
    for (auto& key : passed_)
      if (!present.contains(key))
        fail("a chunk gave way to one behind it");
    passed_.clear();
    for (auto& [key, object] : readable_) {
      if (!object.parent || !present.contains(key) || present.contains(object.parent->first))
        continue;
      auto parent = readable_.find(object.parent->first);
      if (parent != readable_.end() && parent->second.where == object.parent->second)
        fail("a chunk was evicted before its child");
    }
    evictions_
      += std::erase_if(readable_, [&](auto& entry) { return !present.contains(entry.first); });
    if (evictions_ != usage.evicted_objects)
      fail("objects vanished without being evicted");
  }

  void check_slots(const tier_usage& usage) {
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> ranges; // (offset, generation) -> end
    auto note = [&](const slot& where) {
      ranges[{where.offset_bytes, where.generation}] = where.offset_bytes + padded(where);
    };
    for (auto& [id, held] : leases_)
      note(held.where);
    for (auto& [id, where] : engine_holds_)
      note(where);
    for (auto& [key, object] : readable_)
      note(object.where);
    uint64_t end = 0;
    uint64_t total = 0;
    for (auto& [place, range_end] : ranges) {
      if (place.first < end)
        fail("a slot was handed out that is still readable, reserved or held");
      end = range_end;
      total += range_end - place.first;
    }
    if (usage.used_bytes < total)
      fail("slots are in use that the tier counts as free");
  }

  const memory_tier& tier_;
  storage_manager_options options_;
  std::string failure_;
  std::map<uint64_t, asked> requests_;
  std::set<uint64_t> waiting_; ///< Handled, not answered.
  std::map<lease_id, lease> leases_;
  std::map<std::string, stored> readable_;
  std::set<std::pair<uint64_t, uint64_t>> slots_seen_;
  std::set<std::string> missing_; ///< Reported absent by this message.
  std::set<std::string> passed_;  ///< Resident chunks in front of those that it reserved.
  std::set<std::string> observed_;
  std::set<std::string> cleared_; ///< Of these, what is gone and not yet told.
  std::map<std::string, uint64_t> limits_;
  std::map<uint64_t, slot> engine_holds_;
  uint64_t evictions_ = 0;
  storage_status counts_;
};

} // namespace kvasir::test
