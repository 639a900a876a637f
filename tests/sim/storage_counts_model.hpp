// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/storage_model.hpp"

/// What a storage manager must count.
namespace kvasir::test {

inline void storage_model::check(asked& self, const get_storage_status&, caf::message& answer) {
  auto got = unwrap_checked<storage_status>(self, answer);
  if (!got)
    return fail("the status was refused");
  uint64_t claimed = 0;
  uint64_t staged = 0;
  uint64_t expired = 0;
  uint64_t writes = 0;
  for (auto& [id, open] : leases_) {
    writes += open.what != kind::read;
    expired += open.what == kind::expired;
    if (open.what == kind::write)
      claimed += padded(open.where);
    else if (open.what != kind::read)
      staged += padded(open.where);
  }
  auto compare = [&](const char* what, uint64_t have, uint64_t want) {
    if (have != want)
      fail(std::string{"status: "} + what + " is " + std::to_string(have) + ", not "
           + std::to_string(want));
  };
  compare("claimed_bytes", got->claimed_bytes, claimed);
  compare("held_bytes", got->held_bytes, held_bytes());
  compare("staged_bytes", got->staged_bytes, staged);
  compare("expired_leases", got->expired_leases, expired);
  compare("write_leases", got->write_leases, writes);
  compare("read_leases", got->read_leases, leases_.size() - writes);
  compare("waiting", got->waiting, waiting_.size());
  compare("hits", got->hits, counts_.hits);
  compare("misses", got->misses, counts_.misses);
  compare("aborted_writes", got->aborted_writes, counts_.aborted_writes);
  compare("corrupt_objects", got->corrupt_objects, counts_.corrupt_objects);
  compare("unknown_leases", got->unknown_leases, counts_.unknown_leases);
  compare("chunks_stored", got->chunks_stored, counts_.chunks_stored);
  compare("chunks_redundant", got->chunks_redundant, counts_.chunks_redundant);
  compare("chunks_late", got->chunks_late, counts_.chunks_late);
  compare("chunks_no_room", got->chunks_no_room, counts_.chunks_no_room);
  compare("prefix_lookups", got->prefix_lookups, counts_.prefix_lookups);
  compare("prefix_chunks_asked", got->prefix_chunks_asked, counts_.prefix_chunks_asked);
  compare("prefix_chunks_held", got->prefix_chunks_held, counts_.prefix_chunks_held);
  compare("prefixes_cut", got->prefixes_cut, counts_.prefixes_cut);
  compare("rejected_busy", got->rejected_busy, counts_.rejected_busy);
  compare("rejected_too_large", got->rejected_too_large, counts_.rejected_too_large);
  compare("rejected_out_of_memory", got->rejected_out_of_memory,
          counts_.rejected_out_of_memory);
}

} // namespace kvasir::test
