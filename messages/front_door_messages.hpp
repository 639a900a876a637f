// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/storage_messages.hpp"

#include <caf/meta/type_name.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <vector>

/// What one asks of a front door.
namespace kvasir {

struct get_front_door_status {};

struct front_door_status {
  uint64_t open_connections = 0;
  /// In the order of the door's counters, e.g. `lm_count`.
  std::vector<uint64_t> counters;
};

/// Stop accepting; the answer comes when the last connection is closed. Each finishes its
/// request first, unless all are to be closed `at_once`.
struct drain_front_door {
  bool at_once = false;
};

/// A door's unit tells its actor that it serves no connection any more.
struct front_door_drained {};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, get_front_door_status&) {
  return f(caf::meta::type_name("get_front_door_status"));
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, front_door_status& x) {
  return f(caf::meta::type_name("front_door_status"), x.open_connections, x.counters);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, drain_front_door& x) {
  return f(caf::meta::type_name("drain_front_door"), x.at_once);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, front_door_drained&) {
  return f(caf::meta::type_name("front_door_drained"));
}

} // namespace kvasir

CAF_BEGIN_TYPE_ID_BLOCK(kvasir_doors, caf::id_block::kvasir::end)

CAF_ADD_TYPE_ID(kvasir_doors, (kvasir::get_front_door_status))
CAF_ADD_TYPE_ID(kvasir_doors, (kvasir::front_door_status))
CAF_ADD_TYPE_ID(kvasir_doors, (kvasir::drain_front_door))
CAF_ADD_TYPE_ID(kvasir_doors, (kvasir::front_door_drained))

CAF_END_TYPE_ID_BLOCK(kvasir_doors)
