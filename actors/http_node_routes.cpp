#include "actors/http_json.hpp"
#include "actors/http_routes.hpp"
#include "actors/metrics.hpp"

namespace kvasir {

namespace {

constexpr auto text_type = "text/plain; charset=utf-8";
constexpr auto metrics_type = "text/plain; version=0.0.4; charset=utf-8";

} // namespace

void add_node_routes(http_router& routes, const http_context& context) {
  routes.get("/healthz", [&context](const auto&, auto& reply) {
    auto now = context.status();
    reply.status = now.healthy ? 200 : 503;
    reply.set_content((now.healthy ? "ok" : now.unhealthy_reason) + "\n", text_type);
  });
  routes.get("/metrics", [&context](const auto&, auto& reply) {
    reply.set_content(render_metrics(context.status()), metrics_type);
  });
  routes.get("/v1/status", [&context](const auto&, auto& reply) {
    reply.set_content(status_json(context.status(), context.served().config()), json_type);
  });
}

} // namespace kvasir
