// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/object.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

/// What `kvasir` does, one function per command. Each writes results to standard output, one
/// line to standard error if it fails, and returns the exit code.
namespace kvasir::client {

enum exit_code : int {
  ok = 0,
  not_found = 1,
  usage = 2,
  unreachable = 3, ///< Cannot connect, or no answer in time.
  failed = 4,      ///< The server refused or failed.
};

struct options {
  std::string host = "127.0.0.1";
  std::optional<uint16_t> lm_port = 65432;  ///< Nothing: not to be used.
  std::optional<uint16_t> http_port = 8080; ///< As above.
  std::chrono::milliseconds timeout{5000};  ///< Of each wait.
  std::string token_file;
  bool json = false;
};

/// HEALTH over lm:// and /healthz over HTTP, as far as the ports are given.
int ping(const options& how);
int status(const options& how);

/// `layout` without shape: the shape of opaque bytes.
int put(const options& how, const std::string& key, const std::string& file,
        object_layout layout, bool has_shape);
/// Without `file` to standard output, unless that is a terminal.
int get(const options& how, const std::string& key, const std::string& file);

int list(const options& how);
int remove(const options& how, const std::string& key);

/// Without `force` what somebody holds to read stays.
int clear(const options& how, bool force);

/// What tenants use and may use. `tenant` is the cache salt; empty: what has none.
int list_quotas(const options& how);
int get_quota(const options& how, const std::string& tenant);
int set_quota(const options& how, const std::string& tenant, uint64_t limit_bytes);
int remove_quota(const options& how, const std::string& tenant);

/// Prints "kvasir: text" on standard error. @returns `code`.
int fail(exit_code code, const std::string& text);

} // namespace kvasir::client
