// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <string>

namespace kvasir {

struct node_status;

/// A node's numbers in Prometheus' text format. Nothing is counted here: two calls with the
/// same status yield the same text. Names and meaning: docs/operations.md.
///
/// Threading: any thread.
std::string render_metrics(const node_status& status);

} // namespace kvasir
