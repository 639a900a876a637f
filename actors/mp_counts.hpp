// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/lm_door.hpp"

#include <array>
#include <cstdint>

namespace kvasir {

/// What the MP front door counts.
enum class mp_count : uint8_t {
  requests,
  replies,
  errors_sent,
  soft_failures,
  unusable_messages,
  malformed_requests,
  unserved_operations,
  unknown_instances,
  replies_peer_gone,
  replies_peer_slow,
  refused_busy,
  refused_inline,
  rejected_payloads,
  stores,
  stores_failed,
  retrieves,
  retrieves_failed,
  inline_bytes_in,
  inline_bytes_out,
  checksum_mismatches,
  sealed_chunks,
  unsealed_chunks,
  closed_unused,
  handshakes_failed,
  clients_gone,
  registrations,
  registrations_refused,
  restarts_told,
  streams,
  streams_refused,
  count_,
};

/// Indexed by `mp_count`.
const std::array<count_info, static_cast<size_t>(mp_count::count_)>& mp_count_infos();

} // namespace kvasir
