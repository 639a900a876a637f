// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/chunk_messages.hpp"
#include "messages/storage_messages.hpp"

#include <string>
#include <string_view>

/// What the HTTP port says in JSON. Bytes that are no UTF-8 become U+FFFD. Fields are only ever
/// added: docs/operations.md. Threading: pure functions.
namespace kvasir {

struct node_config;
struct node_status;

inline constexpr auto json_type = "application/json";

/// Status and effective configuration.
std::string status_json(const node_status& status, const node_config& config);

std::string objects_json(const object_list& list);

/// Of each tenant with objects or a limit.
std::string quotas_json(const quota_list& list);

/// {"error": text}
std::string error_json(std::string_view text);

} // namespace kvasir
