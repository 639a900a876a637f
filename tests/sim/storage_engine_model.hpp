// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/storage_model.hpp"

/// What engines must find that read without asking.
namespace kvasir::test {

/// Between two messages the index knows neither more nor less than the manager.
inline void storage_model::check_found(const object_key& key, object_index_reader::found answer,
                                       const indexed_object& object, bool overflowed) {
  auto known = readable_.find(key.bytes);
  switch (answer) {
    case object_index_reader::found::unknown:
      if (!overflowed)
        fail("the index does not know, although it lists all");
      return;
    case object_index_reader::found::no:
      if (known != readable_.end())
        fail("an engine did not find a chunk that is readable");
      return;
    case object_index_reader::found::yes:
      if (known == readable_.end() || known->second.where != object.where)
        fail("an engine found what is not readable");
      else if (known->second.sealed != object.sealed
               || known->second.checksum != object.checksum)
        fail("an engine found another checksum than was stored");
      return;
  }
}

} // namespace kvasir::test
