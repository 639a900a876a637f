#include "actors/http_json.hpp"
#include "actors/http_routes.hpp"
#include "actors/number_text.hpp"
#include "messages/mp_key.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace kvasir {

namespace {

using json = nlohmann::ordered_json;

constexpr uint64_t gib = 1ull << 30;
constexpr std::string_view nameless_tenant = "_default"; // How LMCache writes the empty salt.

void say(httplib::Response& reply, const json& value) {
  reply.set_content(value.dump(-1, ' ', false, json::error_handler_t::replace), json_type);
}

// -- status -----------------------------------------------------------------------------

json engine_entry(const engine_status& engine) {
  const auto& layout = engine.layout;
  json group{{"kernel_group_idx", 0},
             {"num_layers", layout.layers},
             {"tokens_per_block", layout.block_size},
             {"dtype", to_string(layout.dtype)},
             {"is_mla", layout.single_plane}};
  return {{"model_name", engine.model},
          {"world_size", engine.world_size},
          {"kv_cache_layout",
           {{"num_layers", layout.layers},
            {"cache_size_per_token", layout.chunk_bytes() / std::max(1u, layout.slots)},
            {"kernel_groups", json::array({std::move(group)})}}}};
}

void on_status(const http_context& context, httplib::Response& reply) {
  auto now = context.status();
  if (!now.healthy)
    return http_context::fail(reply, 503, now.unhealthy_reason);
  const auto& config = context.served().config();
  const auto& storage = now.storage;
  auto capacity = static_cast<double>(std::max<uint64_t>(1, storage.capacity_bytes));
  auto engines = json::object();
  for (const auto& engine : now.engines)
    if (engine.registered)
      engines[std::to_string(engine.instance)] = engine_entry(engine);
  say(reply, {{"is_healthy", true},
              {"engine_type", "kvasir"},
              {"chunk_size", config.chunk_size},
              {"active_sessions", now.sessions.sessions},
              {"storage_manager",
               {{"l1_manager",
                 {{"memory_total_bytes", storage.capacity_bytes},
                  {"memory_used_bytes", storage.used_bytes},
                  {"memory_usage_ratio", static_cast<double>(storage.used_bytes) / capacity},
                  {"total_object_count", storage.objects}}},
                {"eviction_controller", {{"eviction_policy", config.eviction}}},
                {"l2_adapters", json::array()}}},
              {"cache_context_meta", std::move(engines)}});
}

void on_healthcheck(const http_context& context, httplib::Response& reply) {
  auto now = context.status();
  if (!now.healthy)
    return http_context::fail(reply, 503, now.unhealthy_reason);
  say(reply, {{"status", "healthy"}});
}

// -- clear ------------------------------------------------------------------------------

void on_clear(const http_context& context, const httplib::Request& request,
              httplib::Response& reply) {
  auto body = request.body.empty() ? json::object() : json::parse(request.body, nullptr, false);
  if (!body.is_object())
    return http_context::fail(reply, 422, "invalid JSON body");
  auto tier = body.value("tier", json("l1"));
  auto force = body.value("force", json(false));
  if (tier != "l1")
    return http_context::fail(reply, 400, "tier: only 'l1' is supported");
  if (!force.is_boolean())
    return http_context::fail(reply, 422, "force must be true or false");
  context.ask(clear_objects{force.get<bool>()}, reply, [&] {
    say(reply, {{"status", "ok"}, {"cleared", {{"tier", "l1"}}}});
  });
}

// -- quotas -----------------------------------------------------------------------------

/// Compat: with LMCache a limit of 0 keeps nothing, with us it is no limit. No object fits into
/// one byte.
uint64_t limit_of(double gigabytes_as_bytes) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(gigabytes_as_bytes));
}

double gigabytes_of_limit(uint64_t bytes) {
  return bytes == 1 ? 0 : static_cast<double>(bytes) / gib;
}

json quota_entry(const tenant_quota& quota) {
  return {{"limit_gb", gigabytes_of_limit(quota.limit_bytes)},
          {"current_usage_gb", static_cast<double>(quota.used_bytes) / gib}};
}

/// The text in front of the quota's own keys.
std::string shown_salt(const std::string& tenant) {
  return tenant.empty() ? std::string{nameless_tenant} : tenant;
}

/// The tenant named by the path; nothing if it cannot be one: then the reply says so.
std::optional<std::string> tenant_of(const httplib::Request& request,
                                     httplib::Response& reply) {
  auto salt = request.matches[1].str();
  if (salt == nameless_tenant)
    return std::string{};
  if (!salt.empty() && mp::is_cache_salt(salt))
    return salt;
  http_context::fail(reply, 400, "no client can have this cache salt");
  return std::nullopt;
}

tenant_quota quota_of(const quota_list& list, const std::string& tenant) {
  auto found = std::find_if(list.tenants.begin(), list.tenants.end(),
                            [&](const tenant_quota& q) { return q.tenant == tenant; });
  return found != list.tenants.end() ? *found : tenant_quota{tenant, 0, 0};
}

/// Bytes; nothing if the body does not say them: then the reply says what is wrong.
std::optional<double> limit_in(const std::string& text, httplib::Response& reply) {
  auto refuse = [&](const char* why) {
    http_context::fail(reply, 400, why);
    return std::nullopt;
  };
  auto body = json::parse(text, nullptr, false);
  if (body.is_discarded())
    return refuse("invalid JSON body");
  if (!body.is_object() || !body.contains("limit_gb"))
    return refuse("body must be {'limit_gb': <float>}");
  const auto& given = body["limit_gb"];
  std::optional<double> number;
  if (given.is_number())
    number = given.get<double>();
  else if (given.is_string())
    number = parse_number<double>(given.get_ref<const std::string&>());
  if (!number)
    return refuse("limit_gb must be numeric");
  if (!std::isfinite(*number))
    return refuse("limit_gb must be finite");
  if (*number < 0)
    return refuse("limit_gb must be non-negative");
  if (!scaled_size(*number, gib))
    return refuse("limit_gb is larger than any memory");
  return *number * static_cast<double>(gib);
}

void on_quotas(const http_context& context, httplib::Response& reply) {
  context.ask(get_quotas{}, reply, [&](const quota_list& list) {
    auto users = json::object();
    for (const auto& quota : list.tenants)
      if (quota.limit_bytes > 0)
        users[shown_salt(quota.tenant)] = quota_entry(quota);
    say(reply, {{"users", std::move(users)}});
  });
}

void on_get_quota(const http_context& context, const httplib::Request& request,
                  httplib::Response& reply) {
  auto tenant = tenant_of(request, reply);
  if (!tenant)
    return;
  context.ask(get_quotas{}, reply, [&](const quota_list& list) {
    auto quota = quota_of(list, *tenant);
    json answer{{"cache_salt", shown_salt(*tenant)}};
    answer.update(quota_entry(quota));
    answer["exists"] = quota.limit_bytes > 0;
    say(reply, answer);
  });
}

void on_set_quota(const http_context& context, const httplib::Request& request,
                  httplib::Response& reply) {
  auto tenant = tenant_of(request, reply);
  if (!tenant)
    return;
  auto bytes = limit_in(request.body, reply);
  if (!bytes)
    return;
  auto limit = limit_of(*bytes);
  context.ask(set_quota{*tenant, limit}, reply, [&] {
    say(reply, {{"cache_salt", shown_salt(*tenant)},
                {"limit_gb", gigabytes_of_limit(limit)},
                {"status", "ok"}});
  });
}

void on_delete_quota(const http_context& context, const httplib::Request& request,
                     httplib::Response& reply) {
  auto tenant = tenant_of(request, reply);
  if (!tenant)
    return;
  auto answer = [&](const char* status) {
    say(reply, {{"cache_salt", shown_salt(*tenant)}, {"status", status}});
  };
  auto exists = false;
  context.ask(get_quotas{}, reply, [&](const quota_list& list) {
    exists = quota_of(list, *tenant).limit_bytes > 0;
    if (!exists)
      answer("not_found");
  });
  if (exists)
    context.ask(set_quota{*tenant, 0}, reply, [&] { answer("removed"); });
}

} // namespace

void add_lmcache_routes(http_router& routes, const http_context& context) {
  constexpr auto one_quota = "/quota/([^/]*)";
  routes.get("/healthcheck",
             [&context](const auto&, auto& reply) { on_healthcheck(context, reply); });
  routes.get("/status", [&context](const auto&, auto& reply) { on_status(context, reply); });
  routes.post("/cache/clear", context.guarded([&context](const auto& request, auto& reply) {
    on_clear(context, request, reply);
  }));
  routes.get("/quota", [&context](const auto&, auto& reply) { on_quotas(context, reply); });
  routes.get(one_quota, [&context](const auto& request, auto& reply) {
    on_get_quota(context, request, reply);
  });
  routes.put(one_quota, context.guarded([&context](const auto& request, auto& reply) {
    on_set_quota(context, request, reply);
  }));
  routes.del(one_quota, context.guarded([&context](const auto& request, auto& reply) {
    on_delete_quota(context, request, reply);
  }));
}

} // namespace kvasir
