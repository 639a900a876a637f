#include "actors/http_json.hpp"
#include "actors/http_routes.hpp"
#include "actors/number_text.hpp"
#include "messages/mp_key.hpp"

#include <algorithm>

namespace kvasir {

namespace {

/// The tenant that a request names; nothing if it may not be called so: then the reply says it.
std::optional<std::string> tenant_of(const httplib::Request& request,
                                     httplib::Response& reply) {
  auto name = request.get_param_value("tenant");
  if (request.has_param("tenant") && mp::is_cache_salt(name))
    return name;
  http_context::fail(reply, 400, "tenant: the cache salt; empty for objects without one");
  return std::nullopt;
}

void on_set(const http_context& context, const httplib::Request& request,
            httplib::Response& reply) {
  auto tenant = tenant_of(request, reply);
  if (!tenant)
    return;
  auto limit = parse_number<uint64_t>(request.get_param_value("limit_bytes"));
  if (!limit || *limit == 0)
    return http_context::fail(reply, 400, "limit_bytes is not a number of bytes above 0");
  context.ask(set_quota{*tenant, *limit}, reply,
              [&] { reply.set_content("{\"set\":true}\n", json_type); });
}

void on_remove(const http_context& context, const httplib::Request& request,
               httplib::Response& reply) {
  auto tenant = tenant_of(request, reply);
  if (!tenant)
    return;
  auto has_limit = false;
  context.ask(get_quotas{}, reply, [&](const quota_list& list) {
    has_limit
      = std::any_of(list.tenants.begin(), list.tenants.end(), [&](const tenant_quota& q) {
          return q.tenant == *tenant && q.limit_bytes > 0;
        });
    if (!has_limit)
      http_context::fail(reply, 404, "this tenant has no quota");
  });
  if (has_limit)
    context.ask(set_quota{*tenant, 0}, reply,
                [&] { reply.set_content("{\"removed\":true}\n", json_type); });
}

} // namespace

void add_quota_routes(http_router& routes, const http_context& context) {
  routes.get("/v1/quotas", [&context](const auto&, auto& reply) {
    context.ask(get_quotas{}, reply, [&](const quota_list& list) {
      reply.set_content(quotas_json(list), json_type);
    });
  });
  routes.put("/v1/quotas", context.guarded([&context](const auto& request, auto& reply) {
    on_set(context, request, reply);
  }));
  routes.del("/v1/quotas", context.guarded([&context](const auto& request, auto& reply) {
    on_remove(context, request, reply);
  }));
}

} // namespace kvasir
