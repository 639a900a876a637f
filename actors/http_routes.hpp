// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/http_context.hpp"
#include "actors/http_router.hpp"

/// The routes of the HTTP port by topic: docs/operations.md says what each answers. Each function
/// adds its own to `routes`. @pre `context` outlives the server
namespace kvasir {

/// Health, metrics, status.
void add_node_routes(http_router& routes, const http_context& context);

/// List, remove and clear objects.
void add_object_routes(http_router& routes, const http_context& context);

/// What tenants use and may use.
void add_quota_routes(http_router& routes, const http_context& context);

/// Those of LMCache's server that its command line asks for.
/// Source: LMCache 0.5.6, lmcache/cli.
void add_lmcache_routes(http_router& routes, const http_context& context);

} // namespace kvasir
