// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/hold_board.hpp"
#include "backends/hold_page.hpp"
#include "backends/object_index.hpp"
#include "backends/object_index_reader.hpp"

#include <optional>
#include <utility>

namespace kvasir::test {

/// What an engine does that joined: it looks chunks up and holds them without asking.
class joined_engine {
public:
  using found = object_index_reader::found;

  struct hold {
    indexed_object object;
    uint32_t record = 0;
  };

  /// One that the board knows, in this process.
  joined_engine(const object_index& index, hold_board& board)
    : joined_engine(index.read_only_fd(), board, board.add()) {}

  uint64_t id() const { return id_; }
  object_index_reader& reader() { return reader_; }
  hold_page& page() { return page_; }

  found find(const object_key& key, indexed_object& out) {
    return reader_.find(digest_of(key), out);
  }

  /// Finds and holds. Nothing if the index does not say yes, or no more.
  std::optional<hold> acquire(const object_key& key) {
    hold result;
    if (find(key, result.object) != found::yes)
      return std::nullopt;
    auto record = page_.publish(result.object.where);
    if (!record)
      return std::nullopt;
    result.record = *record;
    if (reader_.still(result.object))
      return result;
    page_.withdraw(*record);
    return std::nullopt;
  }

  void release(const hold& held) { page_.withdraw(held.record); }

private:
  joined_engine(int index_fd, hold_board& board, caf::expected<uint64_t> id)
    : id_(id ? *id : 0),
      reader_(std::move(*object_index_reader::map(index_fd))),
      page_(std::move(*hold_page::map(board.fd(id_)))) {}

  uint64_t id_;
  object_index_reader reader_;
  hold_page page_;
};

} // namespace kvasir::test
