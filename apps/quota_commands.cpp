#include "apps/admin_requests.hpp"
#include "apps/client_errors.hpp"
#include "messages/errc.hpp"

#include <algorithm>
#include <cstdio>

namespace kvasir::client {

namespace {

std::string tenant_query(const std::string& tenant) {
  return "/v1/quotas?tenant=" + percent_encoded(tenant);
}

/// The entries of the server's list, each with a tenant and numbers.
caf::expected<json> quotas(const options& how) {
  auto body = get_json(how, "/v1/quotas");
  if (!body)
    return std::move(body.error());
  auto list = body->find("quotas");
  auto unreadable = [](const json& entry) {
    return !entry.is_object() || !entry.value("tenant", json{}).is_string()
           || !entry.value("used_bytes", json{}).is_number_unsigned();
  };
  if (list == body->end() || !list->is_array()
      || std::any_of(list->begin(), list->end(), unreadable))
    return caf::make_error(errc::malformed_frame, "the server's quotas cannot be read");
  return *list;
}

/// Tenant, bytes used, limit; the nameless tenant is "".
void print(const options& how, const json& entry) {
  if (how.json)
    std::printf("%s\n", text_of(entry).c_str());
  else
    std::printf("%-32s %16s %16s\n", text_of(entry["tenant"]).c_str(),
                text_of(entry["used_bytes"]).c_str(),
                entry.contains("limit_bytes") ? text_of(entry["limit_bytes"]).c_str() : "-");
}

} // namespace

int list_quotas(const options& how) {
  auto list = quotas(how);
  if (!list)
    return fail(list.error());
  for (const auto& entry : *list)
    print(how, entry);
  return std::fflush(stdout) == 0 ? ok : fail(failed, "cannot write the list");
}

int get_quota(const options& how, const std::string& tenant) {
  auto list = quotas(how);
  if (!list)
    return fail(list.error());
  for (const auto& entry : *list) {
    if (entry["tenant"] != tenant)
      continue;
    print(how, entry);
    return ok;
  }
  return fail(not_found, "this tenant has neither objects nor a quota");
}

int set_quota(const options& how, const std::string& tenant, uint64_t limit_bytes) {
  return done(how, ask(how, http_method::put,
                       tenant_query(tenant) + "&limit_bytes=" + std::to_string(limit_bytes)));
}

int remove_quota(const options& how, const std::string& tenant) {
  return done(how, ask(how, http_method::remove, tenant_query(tenant)));
}

} // namespace kvasir::client
