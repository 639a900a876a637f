#include "actors/embedding/node_index.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

namespace {

/// The storage manager counts its leases from 1.
constexpr lease_id own_hold = 1ull << 63;

/// A chunk that changes each time it is held is left to the node.
constexpr int attempts = 8;

/// An entry that is in no cache takes 0.3 µs to look at; so many at a time, an eighth of that.
constexpr size_t prefetched_ahead = 8;

} // namespace

caf::expected<node_index> node_index::map(int index_fd, int page_fd, uint64_t pool_bytes) {
  auto reader = object_index_reader::map(index_fd);
  if (!reader)
    return std::move(reader.error());
  auto page = hold_page::map(page_fd);
  if (!page)
    return std::move(page.error());
  return node_index{std::move(*reader), std::move(*page), pool_bytes};
}

node_index::outcome node_index::hold(const index_digest& chunk, uint64_t chunk_bytes,
                                     read_lease& result) {
  indexed_object found;
  for (auto i = 0; i < attempts; ++i) {
    switch (reader_.find(chunk, found)) {
      case object_index_reader::found::no:
        return outcome::missing;
      case object_index_reader::found::unknown:
        return outcome::unknown;
      case object_index_reader::found::yes:
        break;
    }
    auto& where = found.where;
    if (where.size_bytes != chunk_bytes || where.offset_bytes > pool_bytes_
        || pool_bytes_ - where.offset_bytes < chunk_bytes)
      return outcome::missing;
    auto record = page_.publish(where);
    if (!record)
      return outcome::unknown;
    if (reader_.still(found)) {
      page_.touch(found.entry);
      result = {own_hold | *record, where, {}, found.checksum, found.sealed};
      return outcome::held;
    }
    page_.withdraw(*record);
  }
  return outcome::unknown;
}

std::optional<std::vector<read_lease>>
node_index::hold_prefix(std::span<const index_digest> chunks, uint64_t chunk_bytes) {
  std::vector<read_lease> result;
  result.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i + prefetched_ahead < chunks.size())
      reader_.prefetch(chunks[i + prefetched_ahead]);
    read_lease lease;
    switch (hold(chunks[i], chunk_bytes, lease)) {
      case outcome::held:
        result.push_back(lease);
        continue;
      case outcome::missing:
        return result;
      case outcome::unknown:
        for (auto& held : result)
          page_.withdraw(static_cast<uint32_t>(held.id));
        return std::nullopt;
    }
  }
  return result;
}

void node_index::release(std::vector<lease_id>& leases) noexcept {
  std::erase_if(leases, [this](lease_id id) {
    if ((id & own_hold) == 0)
      return false;
    page_.withdraw(static_cast<uint32_t>(id));
    return true;
  });
}

} // namespace kvasir
