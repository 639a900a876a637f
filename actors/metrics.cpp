#include "actors/metrics.hpp"

#include "actors/join_door.hpp"
#include "actors/node.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {

namespace {

constexpr auto counter_type = prometheus::MetricType::Counter;
constexpr auto gauge_type = prometheus::MetricType::Gauge;

class families {
public:
  void gauge(const std::string& name, const char* help, uint64_t value) {
    auto& added = add(name, help, gauge_type);
    added.gauge.value = static_cast<double>(value);
  }

  void counter(const std::string& name, const std::string& help, uint64_t value) {
    auto& added = add(name + "_total", help, counter_type);
    added.counter.value = static_cast<double>(value);
  }

  /// A constant 1 whose label says something.
  void info(const std::string& name, const char* help, const char* label,
            const std::string& value) {
    auto& added = add(name, help, gauge_type);
    added.gauge.value = 1;
    added.label.push_back({label, value});
  }

  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer{}.Serialize(out, all_);
    return out.str();
  }

private:
  prometheus::ClientMetric& add(const std::string& name, const std::string& help,
                                prometheus::MetricType type) {
    auto& family = all_.emplace_back();
    family.name = "kvasir_" + name;
    family.help = help;
    family.type = type;
    return family.metric.emplace_back();
  }

  std::vector<prometheus::MetricFamily> all_;
};

void add_storage(families& to, const storage_status& s) {
  to.gauge("pool_capacity_bytes", "Size of the pool", s.capacity_bytes);
  to.gauge("pool_usable_bytes", "Part of the pool that is faulted in already", s.usable_bytes);
  to.gauge("pool_used_bytes", "Pool memory of complete, reserved and held objects",
           s.used_bytes);
  to.gauge("claimed_bytes", "Pool memory of values that are not complete yet", s.claimed_bytes);
  to.gauge("held_bytes", "Pool memory that readers hold", s.held_bytes);
  to.gauge("objects", "Objects that can be read", s.objects);
  to.gauge("write_leases", "Values on their way in", s.write_leases);
  to.gauge("read_leases", "Values on their way out", s.read_leases);
  to.gauge("waiting_requests", "Requests that wait for room", s.waiting);
  to.counter("hits", "Reads that found their object", s.hits);
  to.counter("misses", "Reads that did not find their object", s.misses);
  to.counter("published", "Objects that became readable", s.published);
  to.counter("replaced", "Objects replaced by a newer one of the same key", s.replaced);
  to.counter("evicted_objects", "Objects that gave way to others", s.evicted_objects);
  to.counter("evicted_bytes", "Pool memory of the objects that gave way", s.evicted_bytes);
  to.counter("removed_objects", "Objects removed on request", s.removed);
  to.counter("aborted_writes", "Values that were not completed", s.aborted_writes);
  to.counter("rejected_too_large", "Writes refused: larger than the largest object",
             s.rejected_too_large);
  to.counter("rejected_out_of_memory", "Writes refused: nothing would give way",
             s.rejected_out_of_memory);
  to.counter("rejected_busy", "Requests refused: too many wait for room, or too much is held",
             s.rejected_busy);
  to.counter("corrupt_objects", "Objects dropped because their bytes had changed",
             s.corrupt_objects);
  to.counter("unknown_leases", "Leases ended that were not there", s.unknown_leases);
  to.gauge("staged_bytes", "Pool memory of chunks that are not complete yet", s.staged_bytes);
  to.gauge("expired_leases", "Reservations that expired and keep their memory",
           s.expired_leases);
  to.counter("chunks_stored", "Chunks that became readable", s.chunks_stored);
  to.counter("chunks_redundant", "Chunks finished when their key was complete already",
             s.chunks_redundant);
  to.counter("chunks_late", "Chunks finished after their reservation expired", s.chunks_late);
  to.counter("chunks_no_room", "Chunks that found no room", s.chunks_no_room);
  to.counter("prefix_lookups", "Lookups of a prompt's prefix", s.prefix_lookups);
  to.counter("prefix_chunks_asked", "Chunks that lookups asked for", s.prefix_chunks_asked);
  to.counter("prefix_chunks_held", "Chunks that lookups found and held", s.prefix_chunks_held);
  to.counter("prefixes_cut", "Lookups that ended early: too much was held", s.prefixes_cut);
  to.gauge("index_objects", "Chunks that engines of this host find without asking",
           s.indexed_objects);
  to.gauge("index_overflowed_sets", "Parts of the index that are too full to list all chunks",
           s.overflowed_sets);
  to.gauge("limbo_bytes", "Pool memory of chunks that are gone, but engines still read",
           s.limbo_bytes);
  to.counter("index_refused", "Chunks that found no place in the index", s.index_refused);
  to.counter("evictions_skipped", "Chunks that did not give way: an engine read them",
             s.skipped_evictions);
  to.counter("engine_touches", "Uses of chunks that engines found without asking",
             s.engine_touches);
  to.counter("engine_touches_overrun", "Times that some of these were lost: too many at a time",
             s.touches_overrun);
}

void add_lm(families& to, const front_door_status& s) {
  to.gauge("lm_open_connections", "Open lm:// connections", s.open_connections);
  const auto& infos = lm_count_infos();
  for (size_t i = 0; i < infos.size() && i < s.counters.size(); ++i)
    to.counter("lm_" + std::string{infos[i].name}, std::string{infos[i].help}, s.counters[i]);
}

void add_mp(families& to, const front_door_status& s) {
  to.gauge("mp_clients", "Clients of the MP port that are not known to be gone",
           s.open_connections);
  const auto& infos = mp_count_infos();
  for (size_t i = 0; i < infos.size() && i < s.counters.size(); ++i)
    to.counter("mp_" + std::string{infos[i].name}, std::string{infos[i].help}, s.counters[i]);
}

void add_join(families& to, const front_door_status& s) {
  to.gauge("joined_engines", "Engines that share the pool by the Unix socket",
           s.open_connections);
  const auto& infos = join_count_infos();
  for (size_t i = 0; i < infos.size() && i < s.counters.size(); ++i)
    to.counter(std::string{infos[i].name}, std::string{infos[i].help}, s.counters[i]);
}

void add_events(families& to, const event_log_status& s) {
  to.gauge("event_readers", "Event streams that wait for news", s.readers_waiting);
  to.gauge("events_kept", "KV events kept for streams that read late", s.kept_events);
  to.gauge("events_kept_bytes", "Memory of the KV events kept", s.kept_bytes);
  to.gauge("events_described_bytes", "Memory of the tokens of chunks that are not readable yet",
           s.described_bytes);
  to.counter("events_stored", "Chunks that became readable on all their ranks", s.stored);
  to.counter("events_removed", "Chunks that ceased to be so", s.removed);
  to.counter("events_dropped", "KV events dropped: too many were kept", s.dropped);
  to.counter("events_undescribed", "Stored chunks not announced: their tokens are not known",
             s.undescribed);
}

void add_sessions(families& to, const session_status& s) {
  to.gauge("sessions", "Requests whose tokens are known", s.sessions);
  to.gauge("lookups_open", "Lookups whose result or leases are still there", s.lookups_open);
  to.gauge("layouts", "Layouts in use, by model and world size", s.layouts);
  to.gauge("session_token_bytes", "Memory of the tokens of all sessions", s.token_bytes);
  to.counter("lookups", "Lookups of prompts", s.lookups);
  to.counter("lookup_chunks", "Chunks that lookups of prompts asked for", s.lookup_chunks);
  to.counter("hit_chunks", "Chunks that lookups of prompts found", s.hit_chunks);
  to.counter("hashed_chunks", "Chunks whose tokens were hashed", s.hashed_chunks);
  to.counter("unlock_misses", "Chunks freed that no lookup of that request held",
             s.unlock_misses);
  to.counter("leases_expired", "Leases of lookups that nobody used in time", s.leases_expired);
  to.counter("sessions_expired", "Sessions that nobody mentioned for too long",
             s.sessions_expired);
  to.counter("sessions_dropped", "Sessions dropped: there were too many", s.sessions_dropped);
  to.counter("layouts_refused", "Registrations refused: another layout is in use",
             s.layouts_refused);
}

/// Gauges only: an engine's counters end with its registration.
void add_engines(families& to, const std::vector<engine_status>& engines) {
  engine_status sum;
  uint64_t registered = 0;
  for (const auto& engine : engines) {
    registered += engine.registered ? 1 : 0;
    sum.handed_out_bytes += engine.handed_out_bytes;
    sum.quarantined_bytes += engine.quarantined_bytes;
    sum.pending_writes += engine.pending_writes;
    sum.pending_reads += engine.pending_reads;
  }
  to.gauge("engines", "Instances known, silent ones included", engines.size());
  to.gauge("engines_registered", "Instances that showed life of late", registered);
  to.gauge("handed_out_bytes", "Slots that engines may read or write now",
           sum.handed_out_bytes);
  to.gauge("quarantined_bytes", "Of these, slots of reservations that expired",
           sum.quarantined_bytes);
  to.gauge("pending_writes", "Stores between prepare and commit", sum.pending_writes);
  to.gauge("pending_reads", "Retrieves between prepare and commit", sum.pending_reads);
}

} // namespace

std::string render_metrics(const node_status& status) {
  families all;
  all.info("boot_info", "Names this process: counters start at 0 with it", "boot_id",
           status.boot_id);
  all.gauge("healthy", "1 if the node can do its work", status.healthy ? 1 : 0);
  all.gauge("pool_growing", "1 while the pool is still being faulted in",
            status.growing ? 1 : 0);
  all.gauge("pool_shared", "1 if the pool is in shared memory",
            status.pool_name.empty() ? 0 : 1);
  all.counter("segment_lost", "Times another process removed the segment's name",
              status.segment_lost);
  add_storage(all, status.storage);
  add_lm(all, status.lm);
  add_mp(all, status.mp);
  add_join(all, status.join);
  add_sessions(all, status.sessions);
  add_events(all, status.events);
  add_engines(all, status.engines);
  all.counter("http_wrong_protocol",
              "Connections of another protocol's client to the HTTP port",
              status.http_wrong_protocol);
  all.counter("io_requests", "Messages from I/O threads to actors", status.io_requests);
  all.counter("io_inline_resumes", "Actors that I/O threads ran themselves",
              status.io_inline_resumes);
  all.counter("io_scheduler_enqueues", "Actors that I/O threads handed to the scheduler",
              status.io_scheduler_enqueues);
  all.counter("io_foreign_replies", "Answers that came from another thread",
              status.io_foreign_replies);
  all.counter("io_eventfd_writes", "Wake-ups of I/O threads", status.io_eventfd_writes);
  all.counter("io_timed_out", "Requests to actors whose deadline passed", status.io_timed_out);
  return all.text();
}

} // namespace kvasir
