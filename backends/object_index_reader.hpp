// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/object_index_format.hpp"
#include "backends/sealed_memory.hpp"
#include "messages/key_digest.hpp"
#include "messages/object.hpp"

#include <caf/expected.hpp>

#include <cstdint>

namespace kvasir {

struct indexed_object {
  slot where;
  uint64_t checksum = 0;
  bool sealed = false;  ///< False: the checksum is not known yet.
  uint32_t entry = 0;   ///< Its number, for `hold_page::touch`.
  uint64_t version = 0; ///< Of that entry, for `still`.
};

/// Looks objects up in another process's `object_index`. To use what was found, hold it:
///
///   find --yes--> hold_page::publish --> still --true--> read the slot --> hold_page::withdraw
///                                        still --false--> withdraw, and find again
///
/// The writer may die or stop at any moment; then what is being written is `unknown`.
///
/// Threading: any thread at any time. Blocking: no call waits; `find` looks some dozens of times
/// at an entry that is being written.
class object_index_reader {
public:
  enum class found : uint8_t {
    yes,
    no,
    unknown, ///< Ask the writer: its set is overflowed, or it is writing for too long.
  };

  /// The descriptor stays the caller's. Whoever maps something else than an index of this version,
  /// or one whose size is not what its header says, is told `errc::invalid_argument`;
  /// `errc::io_error` if the system refuses.
  static caf::expected<object_index_reader> map(int fd);

  /// Changes `out` only if the answer is yes. The slot is as the writer wrote it: whoever does not
  /// trust the writer compares it with the pool's size.
  found find(const index_digest& digest, indexed_object& out) const noexcept;

  /// Lets the memory come closer that `find` will look at: of use some chunks ahead.
  void prefetch(const index_digest& digest) const noexcept;

  /// Whether nothing happened to the entry since it was found. If the slot was published in
  /// between, it is held now.
  bool still(const indexed_object& object) const noexcept;

private:
  object_index_reader(sealed_memory memory, uint64_t set_count);

  found look_at(uint32_t number, const index_digest& digest, uint64_t epoch,
                indexed_object& out) const noexcept;

  sealed_memory memory_;
  uint64_t set_count_; ///< As it was checked: the header is the writer's.
  const index_format::header* header_;
  const index_format::entry* entries_;
  const index_format::overflow_count* overflows_;
};

} // namespace kvasir
