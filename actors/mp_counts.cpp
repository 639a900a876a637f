#include "actors/mp_counts.hpp"

namespace kvasir {

const std::array<count_info, static_cast<size_t>(mp_count::count_)>& mp_count_infos() {
  static constexpr std::array<count_info, static_cast<size_t>(mp_count::count_)> infos{{
    {"requests", "Requests with a readable uid and operation"},
    {"replies", "Replies handed to ZeroMQ"},
    {"errors_sent", "Replies that fail the client's call at once"},
    {"soft_failures", "Replies that say no where the client cannot bear an error"},
    {"unusable_messages",
     "Messages dropped: without uid or operation, or with one too long to be read"},
    {"malformed_requests", "Requests whose arguments do not parse"},
    {"unserved_operations", "Requests of operations that are unknown or not served"},
    {"unknown_instances", "Transfers of instances that are not registered"},
    {"replies_peer_gone", "Replies dropped: their client is gone"},
    {"replies_peer_slow", "Replies dropped: their client does not read"},
    {"refused_busy", "Requests refused: too many of one client under way"},
    {"refused_inline", "Inline transfers refused: too many bytes under way"},
    {"rejected_payloads", "Inline stores whose data is not a list of tensors"},
    {"stores", "Stores answered with true: every chunk is resident"},
    {"stores_failed", "Stores answered with false"},
    {"retrieves", "Retrieves that found all their chunks"},
    {"retrieves_failed", "Retrieves refused"},
    {"inline_bytes_in", "Bytes of chunks that came inline"},
    {"inline_bytes_out", "Bytes of chunks that were sent inline"},
    {"checksum_mismatches", "Chunks that had changed in memory and were dropped"},
    {"sealed_chunks", "Chunks that engines wrote into shared memory and that were hashed since"},
    {"unsealed_chunks", "Chunks left without a checksum: too many waited to be hashed"},
    {"closed_unused", "Connections that ended without a request"},
    {"handshakes_failed", "Connections of something that does not speak ZMTP"},
    {"clients_gone", "Connections whose leases ended because they went away"},
    {"registrations", "Instances registered"},
    {"registrations_refused", "Registrations refused"},
    {"restarts_told", "Instances told by a failed ping to register again"},
    {"streams", "Event streams begun"},
    {"streams_refused", "Event streams refused: too many, or the node is ending"},
  }};
  return infos;
}

} // namespace kvasir
