#include "actors/kv_event_log.hpp"

#include "actors/handover.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

namespace {

/// What a kept event takes beside its texts and tokens.
constexpr uint64_t event_bytes = 160;

/// A key without its rank: the same for all objects of one chunk.
std::string chunk_of(const object_key& key) {
  auto result = key.bytes;
  for (size_t i = 2; i < 6 && i < result.size(); ++i)
    result[i] = '\0';
  return result;
}

std::string hash_text(const mp::token_hash& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

uint64_t bytes_of(const std::vector<uint32_t>& tokens, const std::string& parent_hash) {
  return event_bytes + tokens.size() * sizeof(uint32_t) + parent_hash.size();
}

uint64_t bytes_of(const kv_event& event) {
  return bytes_of(event.tokens, event.parent_block_hash);
}

} // namespace

kv_event_log::kv_event_log(caf::actor_config& config, event_log_options options)
  : kv_event_log_actor::base(config),
    options_(options) {}

kv_event_log::behavior_type kv_event_log::make_behavior() {
  return {
    [this](const describe_chunks& request) {
      handover_scope scope{this};
      on_described(request);
    },
    [this](const objects_changed& request) {
      handover_scope scope{this};
      for (auto& change : request.changes)
        on_changed(change);
      serve_waiting();
    },
    [this](const read_kv_events& request) {
      handover_scope scope{this};
      return on_read(request);
    },
    [this](const end_kv_reader& request) {
      handover_scope scope{this};
      auto node = waiting_.extract(request.reader);
      if (!node.empty())
        node.mapped().promise.deliver(caf::make_error(errc::not_reserved));
    },
    [this](const get_event_log_status&) -> caf::result<event_log_status> {
      handover_scope scope{this};
      auto result = counters_;
      result.readers_waiting = waiting_.size();
      result.kept_events = records_.size();
      return result;
    },
  };
}

// -- what happens -----------------------------------------------------------------------

/// Comes before the chunks become readable, so that their tokens are known then.
void kv_event_log::on_described(const describe_chunks& what) {
  if (!recording_ || what.keys.empty())
    return;
  auto per_chunk = what.tokens.size() / what.keys.size();
  std::string parent_hash;
  if (auto parent = mp::parse_chunk_key(what.parent.bytes))
    parent_hash = hash_text(parent->chunk.hash);
  for (size_t i = 0; i < what.keys.size(); ++i) {
    auto key = mp::parse_chunk_key(what.keys[i].bytes);
    if (!key)
      continue;
    auto first = what.tokens.begin() + static_cast<ptrdiff_t>(i * per_chunk);
    describe(chunk_of(what.keys[i]),
             {{first, first + static_cast<ptrdiff_t>(per_chunk)}, parent_hash});
    parent_hash = hash_text(key->chunk.hash);
  }
}

void kv_event_log::describe(std::string chunk, description what) {
  take_description(chunk);
  counters_.described_bytes += bytes_of(what.tokens, what.parent_hash);
  what.age = described_by_age_.insert(described_by_age_.end(), chunk);
  described_.emplace(std::move(chunk), std::move(what));
  while (counters_.described_bytes > options_.max_described_bytes)
    take_description(std::string{described_by_age_.front()});
}

std::optional<kv_event_log::description>
kv_event_log::take_description(const std::string& chunk) {
  auto node = described_.extract(chunk);
  if (node.empty())
    return std::nullopt;
  counters_.described_bytes -= bytes_of(node.mapped().tokens, node.mapped().parent_hash);
  described_by_age_.erase(node.mapped().age);
  return std::move(node.mapped());
}

void kv_event_log::on_changed(const object_change& what) {
  auto key = mp::parse_chunk_key(what.key.bytes);
  if (!key)
    return;
  auto chunk = chunk_of(what.key);
  auto full = rank_set{};
  for (uint32_t rank = 0; rank < key->world_size; ++rank)
    full[rank / 64] |= uint64_t{1} << (rank % 64);
  auto bit = uint64_t{1} << (key->rank % 64);
  auto note = partial_.find(chunk);
  auto ranks = note != partial_.end() ? note->second : what.stored ? rank_set{} : full;
  auto was_full = ranks == full;
  if (what.stored)
    ranks[key->rank / 64] |= bit;
  else
    ranks[key->rank / 64] &= ~bit;
  if (ranks == full || ranks == rank_set{}) {
    if (note != partial_.end())
      partial_.erase(note);
  } else {
    partial_[chunk] = ranks;
    if (partial_.size() > options_.max_partial)
      lose_everything();
  }
  if (was_full == (ranks == full))
    return;
  kv_event event;
  event.stored = what.stored;
  event.block_hash = hash_text(key->chunk.hash);
  if (!what.stored) {
    ++counters_.removed;
    add(std::move(key->model), std::move(event));
    return;
  }
  ++counters_.stored;
  auto known = take_description(chunk);
  if (recording_ && !known) {
    ++counters_.undescribed;
    return;
  }
  if (known) {
    event.tokens = std::move(known->tokens);
    event.parent_block_hash = std::move(known->parent_hash);
  }
  add(std::move(key->model), std::move(event));
}

void kv_event_log::add(std::string model, kv_event event) {
  event.seq = next_seq_++;
  if (!recording_)
    return;
  counters_.kept_bytes += bytes_of(event);
  records_.push_back({std::move(model), std::move(event)});
  while (records_.size() > options_.max_events || counters_.kept_bytes > options_.max_bytes)
    drop_oldest();
}

void kv_event_log::drop_oldest() {
  counters_.kept_bytes -= bytes_of(records_.front().event);
  records_.pop_front();
  ++counters_.dropped;
}

/// Which ranks have which chunks is not known any more. Everybody is told of a loss.
void kv_event_log::lose_everything() {
  partial_.clear();
  while (!records_.empty())
    drop_oldest();
  ++next_seq_;
}

// -- reading ----------------------------------------------------------------------------

kv_event_batch kv_event_log::batch_for(const read_kv_events& request) const {
  kv_event_batch batch;
  batch.incarnation = options_.incarnation;
  auto first_kept = next_seq_ - records_.size();
  // Beyond the end: it counts the events of another log.
  batch.lost = request.cursor < first_kept || request.cursor > next_seq_;
  auto cursor = std::clamp(request.cursor, first_kept, next_seq_);
  for (; cursor < next_seq_ && batch.events.size() < request.max_events; ++cursor) {
    auto& kept = records_[cursor - first_kept];
    if (kept.model == request.model)
      batch.events.push_back(kept.event);
  }
  batch.next_cursor = cursor;
  return batch;
}

caf::result<kv_event_batch> kv_event_log::on_read(const read_kv_events& request) {
  recording_ = true;
  if (auto former = waiting_.extract(request.reader); !former.empty())
    former.mapped().promise.deliver(caf::make_error(errc::not_reserved));
  auto batch = batch_for(request);
  if (!request.wait || batch.lost || !batch.events.empty())
    return batch;
  if (waiting_.size() >= options_.max_readers)
    return caf::make_error(errc::busy);
  auto promise = make_response_promise<kv_event_batch>();
  auto& waiting = waiting_[request.reader];
  waiting = {request, promise};
  waiting.request.cursor = batch.next_cursor;
  return promise;
}

void kv_event_log::serve_waiting() {
  for (auto i = waiting_.begin(); i != waiting_.end();) {
    auto batch = batch_for(i->second.request);
    if (batch.events.empty() && !batch.lost) {
      i->second.request.cursor = batch.next_cursor;
      ++i;
      continue;
    }
    i->second.promise.deliver(std::move(batch));
    i = waiting_.erase(i);
  }
}

/// Promises hold their actor: what is not answered now would keep it.
void kv_event_log::on_exit() {
  handover_scope scope{this};
  for (auto& [reader, waiting] : waiting_)
    waiting.promise.deliver(caf::make_error(errc::peer_unreachable));
  waiting_.clear();
}

} // namespace kvasir
