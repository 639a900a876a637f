// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "apps/client_commands.hpp"
#include "apps/http_client.hpp"

#include <nlohmann/json.hpp>

#include <string>

/// What the commands that ask the HTTP port have in common.
namespace kvasir::client {

using json = nlohmann::ordered_json;

/// One line; bytes that are no UTF-8 become U+FFFD.
std::string text_of(const json& value);

/// One request, with the admin token if there is one.
caf::expected<http_answer> ask(const options& how, http_method method,
                               const std::string& target);

/// The JSON object that a GET answers.
caf::expected<json> get_json(const options& how, const std::string& target);

/// The command's end after a request that changes something.
int done(const options& how, const caf::expected<http_answer>& answer);

} // namespace kvasir::client
