#include "actors/http_json.hpp"

#include "actors/config_options.hpp"
#include "actors/join_door.hpp"
#include "actors/node.hpp"
#include "messages/chunk_key.hpp"

#include <nlohmann/json.hpp>

namespace kvasir {

namespace {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

json storage_of(const storage_status& s) {
  return {
    {"capacity_bytes", s.capacity_bytes},
    {"usable_bytes", s.usable_bytes},
    {"used_bytes", s.used_bytes},
    {"claimed_bytes", s.claimed_bytes},
    {"held_bytes", s.held_bytes},
    {"objects", s.objects},
    {"write_leases", s.write_leases},
    {"read_leases", s.read_leases},
    {"waiting", s.waiting},
    {"hits", s.hits},
    {"misses", s.misses},
    {"published", s.published},
    {"replaced", s.replaced},
    {"evicted_objects", s.evicted_objects},
    {"evicted_bytes", s.evicted_bytes},
    {"removed", s.removed},
    {"aborted_writes", s.aborted_writes},
    {"rejected_too_large", s.rejected_too_large},
    {"rejected_out_of_memory", s.rejected_out_of_memory},
    {"rejected_busy", s.rejected_busy},
    {"corrupt_objects", s.corrupt_objects},
    {"unknown_leases", s.unknown_leases},
    {"staged_bytes", s.staged_bytes},
    {"expired_leases", s.expired_leases},
    {"chunks_stored", s.chunks_stored},
    {"chunks_redundant", s.chunks_redundant},
    {"chunks_late", s.chunks_late},
    {"chunks_no_room", s.chunks_no_room},
    {"prefix_lookups", s.prefix_lookups},
    {"prefix_chunks_asked", s.prefix_chunks_asked},
    {"prefix_chunks_held", s.prefix_chunks_held},
    {"prefixes_cut", s.prefixes_cut},
    {"indexed_objects", s.indexed_objects},
    {"overflowed_sets", s.overflowed_sets},
    {"limbo_bytes", s.limbo_bytes},
    {"index_refused", s.index_refused},
    {"skipped_evictions", s.skipped_evictions},
    {"engine_touches", s.engine_touches},
    {"touches_overrun", s.touches_overrun},
  };
}

json lm_of(const front_door_status& s) {
  json result{{"open_connections", s.open_connections}};
  const auto& infos = lm_count_infos();
  for (size_t i = 0; i < infos.size() && i < s.counters.size(); ++i)
    result[std::string{infos[i].name}] = s.counters[i];
  return result;
}

json mp_of(const front_door_status& s) {
  json result{{"clients", s.open_connections}};
  const auto& infos = mp_count_infos();
  for (size_t i = 0; i < infos.size() && i < s.counters.size(); ++i)
    result[std::string{infos[i].name}] = s.counters[i];
  return result;
}

json join_of(const front_door_status& s) {
  json result{{"engines", s.open_connections}};
  const auto& infos = join_count_infos();
  for (size_t i = 0; i < infos.size() && i < s.counters.size(); ++i)
    result[std::string{infos[i].name}] = s.counters[i];
  return result;
}

json events_of(const event_log_status& s) {
  return {
    {"readers_waiting", s.readers_waiting},
    {"kept_events", s.kept_events},
    {"kept_bytes", s.kept_bytes},
    {"described_bytes", s.described_bytes},
    {"stored", s.stored},
    {"removed", s.removed},
    {"dropped", s.dropped},
    {"undescribed", s.undescribed},
  };
}

json sessions_of(const session_status& s) {
  return {
    {"sessions", s.sessions},
    {"lookups_open", s.lookups_open},
    {"layouts", s.layouts},
    {"token_bytes", s.token_bytes},
    {"lookups", s.lookups},
    {"lookup_chunks", s.lookup_chunks},
    {"hit_chunks", s.hit_chunks},
    {"hashed_chunks", s.hashed_chunks},
    {"unlock_misses", s.unlock_misses},
    {"leases_expired", s.leases_expired},
    {"sessions_expired", s.sessions_expired},
    {"sessions_dropped", s.sessions_dropped},
    {"layouts_refused", s.layouts_refused},
  };
}

json engine_of(const engine_status& s) {
  return {
    {"instance", s.instance},
    {"model", s.model},
    {"world_size", s.world_size},
    {"registered", s.registered},
    {"inline_only", s.inline_only},
    {"pid", s.pid},
    {"handed_out_bytes", s.handed_out_bytes},
    {"quarantined_bytes", s.quarantined_bytes},
    {"pending_writes", s.pending_writes},
    {"pending_reads", s.pending_reads},
    {"stores", s.stores},
    {"stores_failed", s.stores_failed},
    {"store_bytes", s.store_bytes},
    {"retrieves", s.retrieves},
    {"retrieves_failed", s.retrieves_failed},
    {"retrieve_bytes", s.retrieve_bytes},
    {"no_room", s.no_room},
    {"over_limit", s.over_limit},
    {"late_commits", s.late_commits},
    {"skipped_shape", s.skipped_shape},
    {"skipped_missing", s.skipped_missing},
    {"expired_writes", s.expired_writes},
    {"reaped", s.reaped},
    {"revived", s.revived},
  };
}

} // namespace

std::string status_json(const node_status& s, const node_config& config) {
  json effective;
  for (const auto& [name, value] : describe_config(config))
    effective[name] = value;
  auto engines = json::array();
  for (const auto& engine : s.engines)
    engines.push_back(engine_of(engine));
  json result{
    {"boot_id", s.boot_id},
    {"uptime_seconds", s.uptime.count()},
    {"healthy", s.healthy},
    {"unhealthy_reason", s.unhealthy_reason},
    {"pool",
     {{"name", s.pool_name},
      {"fallback_reason", s.pool_fallback_reason},
      {"growing", s.growing},
      {"segment_lost", s.segment_lost}}},
    {"storage", storage_of(s.storage)},
    {"lm", lm_of(s.lm)},
    {"mp", mp_of(s.mp)},
    {"joined", join_of(s.join)},
    {"sessions", sessions_of(s.sessions)},
    {"events", events_of(s.events)},
    {"engines", std::move(engines)},
    {"http", {{"wrong_protocol", s.http_wrong_protocol}}},
    {"io",
     {{"requests", s.io_requests},
      {"inline_resumes", s.io_inline_resumes},
      {"scheduler_enqueues", s.io_scheduler_enqueues},
      {"foreign_replies", s.io_foreign_replies},
      {"eventfd_writes", s.io_eventfd_writes},
      {"timed_out", s.io_timed_out}}},
    {"config", std::move(effective)},
  };
  return text_of(result);
}

namespace {

std::string key_text(const object_key& key) {
  auto chunk = mp::parse_chunk_key(key.bytes);
  return chunk ? mp::display_text(*chunk) : key.bytes;
}

} // namespace

std::string objects_json(const object_list& list) {
  auto objects = json::array();
  for (const auto& object : list.objects)
    objects.push_back({{"key", key_text(object.key)}, {"size_bytes", object.size_bytes}});
  return text_of({{"objects", std::move(objects)}, {"next_cursor", list.next_cursor}});
}

std::string quotas_json(const quota_list& list) {
  auto quotas = json::array();
  for (const auto& quota : list.tenants) {
    json entry{{"tenant", quota.tenant}, {"used_bytes", quota.used_bytes}};
    if (quota.limit_bytes > 0)
      entry["limit_bytes"] = quota.limit_bytes;
    quotas.push_back(std::move(entry));
  }
  return text_of({{"quotas", std::move(quotas)}});
}

std::string error_json(std::string_view text) {
  return text_of({{"error", text}});
}

} // namespace kvasir
