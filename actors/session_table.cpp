#include "actors/session_table.hpp"

#include "actors/handover.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

session_table::session_table(caf::actor_config& config, storage_manager_actor manager,
                             session_options options)
  : session_table_actor::base(config),
    manager_(std::move(manager)),
    options_(std::move(options)) {}

session_table::behavior_type session_table::make_behavior() {
  return {
    [this](const add_layout& request) {
      handover_scope scope{this};
      return on_add_layout(request);
    },
    [this](const remove_layout& request) -> caf::result<void> {
      handover_scope scope{this};
      on_remove_layout(request);
      return caf::unit;
    },
    [this](lookup_prompt& request) {
      handover_scope scope{this};
      return on_lookup(request);
    },
    [this](const take_lookup_result& request) {
      handover_scope scope{this};
      return on_take_result(request);
    },
    [this](const free_lookup& request) -> caf::result<void> {
      handover_scope scope{this};
      on_free(request);
      return caf::unit;
    },
    [this](const end_session& request) -> caf::result<void> {
      handover_scope scope{this};
      drop_session(request.request_id);
      return caf::unit;
    },
    [this](resolve_chunks& request) {
      handover_scope scope{this};
      return on_resolve(request);
    },
    [this](const client_gone& request) {
      handover_scope scope{this};
      for (auto& [id, entry] : sessions_)
        if (entry.found && entry.found->client == request.client)
          end_lookup(entry);
    },
    [this](const tick&) {
      handover_scope scope{this};
      on_tick();
    },
    [this](const get_session_status&) -> caf::result<session_status> {
      handover_scope scope{this};
      return status();
    },
  };
}

// -- layouts ----------------------------------------------------------------------------

caf::result<void> session_table::on_add_layout(const add_layout& request) {
  for (auto& [model, use] : layouts_)
    for (auto& user : use.users)
      if (user.instance == request.instance && user.incarnation > request.incarnation)
        return caf::make_error(errc::not_found);
  on_remove_layout({request.instance, request.incarnation});
  auto& use = layouts_[{request.model, request.world_size}];
  if (!use.users.empty() && use.digest != request.layout_digest) {
    ++counters_.layouts_refused;
    return caf::make_error(errc::layout_mismatch);
  }
  use.digest = request.layout_digest;
  use.users.push_back({request.instance, request.incarnation});
  return caf::unit;
}

void session_table::on_remove_layout(const remove_layout& request) {
  for (auto i = layouts_.begin(); i != layouts_.end();) {
    std::erase_if(i->second.users, [&](auto& user) {
      return user.instance == request.instance && user.incarnation <= request.incarnation;
    });
    i = i->second.users.empty() ? layouts_.erase(i) : std::next(i);
  }
}

const session_table::layout_use* session_table::find_layout(const std::string& model,
                                                            uint32_t world_size) const {
  auto i = layouts_.find({model, world_size});
  return i == layouts_.end() ? nullptr : &i->second;
}

// -- sessions ---------------------------------------------------------------------------

session_table::session& session_table::open_session(const std::string& request_id) {
  auto [i, is_new] = sessions_.try_emplace(request_id, options_.hasher);
  auto& entry = i->second;
  if (is_new)
    entry.by_use = by_use_.insert(by_use_.end(), request_id);
  else
    by_use_.splice(by_use_.end(), by_use_, entry.by_use);
  entry.last_used = clock().now();
  while (sessions_.size() > options_.max_sessions && by_use_.begin() != entry.by_use) {
    ++counters_.sessions_dropped;
    drop_session(std::string{by_use_.front()});
  }
  return entry;
}

/// Only the chunks that are new are hashed.
size_t session_table::extend(session& of, const std::vector<uint32_t>& tokens) {
  auto before = of.chain.chunk_count();
  auto count = of.chain.extend(tokens);
  counters_.hashed_chunks += of.chain.chunk_count() - std::min(before, of.chain.chunk_count());
  counters_.token_bytes -= of.token_bytes;
  of.token_bytes = of.chain.tokens().size_bytes();
  counters_.token_bytes += of.token_bytes;
  while (counters_.token_bytes > options_.max_token_bytes && by_use_.begin() != of.by_use) {
    ++counters_.sessions_dropped;
    drop_session(std::string{by_use_.front()});
  }
  return count;
}

void session_table::drop_session(const std::string& request_id) {
  auto i = sessions_.find(request_id);
  if (i == sessions_.end())
    return;
  end_lookup(i->second);
  counters_.token_bytes -= i->second.token_bytes;
  by_use_.erase(i->second.by_use);
  sessions_.erase(i);
}

void session_table::end_lookup(session& of) {
  if (!of.found)
    return;
  if (of.found->running || !of.found->leases.empty())
    send(manager_, end_owner{of.found->owner});
  for (auto& promise : of.found->waiting)
    promise.deliver(caf::make_error(errc::not_reserved));
  lease_ends_.erase({of.found->leases_end, of.found->number});
  of.found.reset();
}

// -- looking up -------------------------------------------------------------------------

caf::result<void> session_table::on_lookup(lookup_prompt& request) {
  ++counters_.lookups;
  auto& entry = open_session(request.request_id);
  end_lookup(entry);
  auto count = extend(entry, request.tokens);
  auto& found = entry.found.emplace(lookup{});
  found.owner = next_owner_id();
  found.number = ++next_number_;
  found.client = request.client;
  found.model = std::move(request.model);
  found.salt = std::move(request.salt);
  found.world_size = request.world_size;
  counters_.lookup_chunks += count;
  auto layout = find_layout(found.model, found.world_size);
  if (layout == nullptr || count == 0 || request.readers == 0) {
    finish_lookup(found);
    return caf::unit;
  }
  hold_prefix wanted{found.owner, found.world_size, {}};
  wanted.keys.reserve(count * found.world_size);
  found.identities.reserve(count);
  mp::chunk_key_prefix prefix{found.world_size, layout->digest, found.salt, found.model};
  for (size_t i = 0; i < count; ++i) {
    found.identities.push_back(entry.chain.chunk(i));
    for (uint32_t rank = 0; rank < found.world_size; ++rank)
      wanted.keys.push_back(prefix.key(found.identities.back(), rank));
  }
  found.tickets.assign(1, request.readers); // Until it is known for how many chunks.
  auto id = request.request_id;
  auto number = found.number;
  this->request(manager_, caf::infinite, std::move(wanted))
    .then(
      [this, id, number](prefix_held& held) {
        handover_scope scope{this};
        on_prefix_held(id, number, held);
      },
      [this, id, number](const caf::error&) {
        handover_scope scope{this};
        prefix_held nothing;
        on_prefix_held(id, number, nothing);
      });
  return caf::unit;
}

void session_table::on_prefix_held(const std::string& request_id, uint64_t number,
                                   prefix_held& held) {
  auto i = sessions_.find(request_id);
  // Otherwise its owner was ended after the question: the leases are gone already.
  if (i == sessions_.end() || !i->second.found || i->second.found->number != number)
    return;
  auto& found = *i->second.found;
  found.chunks = held.chunks;
  found.identities.resize(held.chunks);
  auto readers = found.tickets.front();
  found.tickets.assign(held.leases.size(), readers);
  found.leases = std::move(held.leases);
  found.leases_end = clock().now() + options_.read_ttl;
  if (!found.leases.empty())
    lease_ends_.emplace(std::pair{found.leases_end, number}, request_id);
  counters_.hit_chunks += found.chunks;
  finish_lookup(found);
}

void session_table::finish_lookup(lookup& of) {
  of.running = false;
  for (auto& promise : of.waiting) {
    promise.deliver(lookup_result{false, std::exchange(of.consumed, true) ? 0 : of.chunks});
  }
  of.waiting.clear();
}

caf::result<lookup_result> session_table::on_take_result(const take_lookup_result& request) {
  auto i = sessions_.find(request.request_id);
  if (i == sessions_.end() || !i->second.found)
    return lookup_result{};
  auto& found = *i->second.found;
  if (!found.running)
    return lookup_result{false, std::exchange(found.consumed, true) ? 0 : found.chunks};
  if (!request.wait)
    return lookup_result{true, 0};
  if (found.waiting.size() >= max_waiting)
    return caf::make_error(errc::busy);
  auto promise = make_response_promise<lookup_result>();
  found.waiting.push_back(promise);
  return promise;
}

bool session_table::announced_by(const session& of, const prompt_range& range, size_t first,
                                 size_t last) const {
  if (!of.found || of.found->running)
    return false;
  auto& found = *of.found;
  if (found.model != range.model || found.salt != range.salt
      || found.world_size != range.world_size || last > found.chunks)
    return false;
  for (auto i = first; i < last; ++i)
    if (found.identities[i] != of.chain.chunk(i))
      return false;
  return true;
}

void session_table::on_free(const free_lookup& request) {
  auto size = options_.hasher.chunk_size();
  auto first = request.range.start / size;
  auto last = std::min<uint64_t>(request.range.end, request.range.tokens.size()) / size;
  if (first >= last)
    return;
  auto i = sessions_.find(request.range.request_id);
  if (i == sessions_.end() || !i->second.found) {
    counters_.unlock_misses += last - first;
    return;
  }
  auto& entry = i->second;
  extend(entry, request.range.tokens);
  auto held = std::clamp<uint64_t>(entry.found->chunks, first, last);
  counters_.unlock_misses += last - held;
  if (first < held && !announced_by(entry, request.range, first, held)) {
    counters_.unlock_misses += held - first;
    return;
  }
  auto& found = *entry.found;
  end_leases spent;
  for (auto at = first * found.world_size; at < held * found.world_size; ++at) {
    auto used = std::min(found.tickets[at], request.readers);
    counters_.unlock_misses += used == 0 ? 1 : 0;
    found.tickets[at] -= used;
    if (found.tickets[at] == 0 && !found.leases.empty() && found.leases[at] != 0)
      spent.leases.push_back(std::exchange(found.leases[at], 0));
  }
  if (!spent.leases.empty())
    send(manager_, std::move(spent));
}

// -- naming -----------------------------------------------------------------------------

caf::result<resolved_chunks> session_table::on_resolve(resolve_chunks& request) {
  auto& range = request.range;
  auto size = options_.hasher.chunk_size();
  if (range.start % size != 0 || range.end % size != 0 || range.start > range.end
      || range.end > range.tokens.size() || range.rank >= range.world_size)
    return caf::make_error(errc::invalid_argument);
  auto layout = find_layout(range.model, range.world_size);
  if (layout == nullptr)
    return caf::make_error(errc::not_found);
  if (layout->digest != request.layout_digest)
    return caf::make_error(errc::layout_mismatch);
  auto& entry = open_session(range.request_id);
  extend(entry, range.tokens);
  auto first = range.start / size;
  auto last = range.end / size;
  mp::chunk_key_prefix prefix{range.world_size, layout->digest, range.salt, range.model};
  resolved_chunks result;
  result.keys.reserve(last - first);
  for (auto i = first; i < last; ++i)
    result.keys.push_back(prefix.key(entry.chain.chunk(i), range.rank));
  if (first > 0)
    result.parent = prefix.key(entry.chain.chunk(first - 1), range.rank);
  if (request.with_tokens)
    result.tokens.assign(range.tokens.begin() + static_cast<ptrdiff_t>(range.start),
                         range.tokens.begin() + static_cast<ptrdiff_t>(range.end));
  if (request.for_retrieve && announced_by(entry, range, first, last))
    use_tickets(*entry.found, range.rank, first, last, result);
  return result;
}

/// All of them or none.
void session_table::use_tickets(lookup& of, uint32_t rank, size_t first, size_t last,
                                resolved_chunks& result) {
  auto at = [&](size_t chunk) {
    return chunk * of.world_size + rank;
  };
  for (auto i = first; i < last; ++i)
    if (of.tickets[at(i)] == 0)
      return;
  result.announced = true;
  for (auto i = first; i < last; ++i)
    if (--of.tickets[at(i)] == 0 && !of.leases.empty() && of.leases[at(i)] != 0)
      result.spent.push_back(std::exchange(of.leases[at(i)], 0));
}

// -- time -------------------------------------------------------------------------------

void session_table::on_tick() {
  auto now = clock().now();
  while (!lease_ends_.empty() && lease_ends_.begin()->first.first <= now) {
    auto& found = *sessions_.at(lease_ends_.begin()->second).found;
    lease_ends_.erase(lease_ends_.begin());
    counters_.leases_expired += static_cast<uint64_t>(
      std::count_if(found.leases.begin(), found.leases.end(), [](auto id) { return id != 0; }));
    found.leases.clear();
    send(manager_, end_owner{found.owner});
  }
  while (!by_use_.empty()
         && sessions_.at(by_use_.front()).last_used + options_.session_ttl <= now) {
    ++counters_.sessions_expired;
    drop_session(std::string{by_use_.front()});
  }
}

session_status session_table::status() const {
  auto result = counters_;
  result.sessions = sessions_.size();
  result.layouts = layouts_.size();
  for (auto& [id, entry] : sessions_)
    result.lookups_open
      += entry.found && (!entry.found->consumed || !entry.found->leases.empty()) ? 1 : 0;
  return result;
}

/// Promises hold their actor: what is not answered now would keep it.
void session_table::on_exit() {
  handover_scope scope{this};
  for (auto& [id, entry] : sessions_)
    if (entry.found) {
      for (auto& promise : entry.found->waiting)
        promise.deliver(caf::make_error(errc::peer_unreachable));
      entry.found->waiting.clear();
    }
}

} // namespace kvasir
