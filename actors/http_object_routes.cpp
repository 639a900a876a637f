#include "actors/http_json.hpp"
#include "actors/http_routes.hpp"
#include "actors/number_text.hpp"
#include "messages/lm_key.hpp"

namespace kvasir {

namespace {

void on_list(const http_context& context, const httplib::Request& request,
             httplib::Response& reply) {
  list_objects slice;
  if (auto text = request.get_param_value("cursor"); !text.empty()) {
    auto cursor = parse_number<uint64_t>(text);
    if (!cursor)
      return http_context::fail(reply, 400, "cursor is not a number");
    slice.cursor = *cursor;
  }
  context.ask(slice, reply, [&](const object_list& list) {
    reply.set_content(objects_json(list), json_type);
  });
}

void on_remove(const http_context& context, const httplib::Request& request,
               httplib::Response& reply) {
  auto key = lm::canonical_key(std::string_view{request.get_param_value("key")});
  if (!key)
    return http_context::fail(reply, 400, "key: " + std::string{lm::to_string(key.fault)});
  context.ask(remove_object{{key.bytes}}, reply,
              [&] { reply.set_content("{\"removed\":true}\n", json_type); });
}

void on_clear(const http_context& context, const httplib::Request& request,
              httplib::Response& reply) {
  auto force = request.get_param_value("force");
  if (!force.empty() && force != "true" && force != "false")
    return http_context::fail(reply, 400, "force is true or false");
  context.ask(clear_objects{force != "false"}, reply,
              [&] { reply.set_content("{\"cleared\":true}\n", json_type); });
}

} // namespace

void add_object_routes(http_router& routes, const http_context& context) {
  routes.get("/v1/objects", [&context](const auto& request, auto& reply) {
    on_list(context, request, reply);
  });
  routes.del("/v1/objects", context.guarded([&context](const auto& request, auto& reply) {
    on_remove(context, request, reply);
  }));
  routes.post("/v1/clear", context.guarded([&context](const auto& request, auto& reply) {
    on_clear(context, request, reply);
  }));
}

} // namespace kvasir
