#include "actors/io_reply.hpp"

#include "actors/io_unit.hpp"

namespace kvasir {

caf::message_id io_reply_table::add(io_reply_base& reply) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(seats_.size()));
    seats_.emplace_back();
  }
  auto index = free_.back();
  free_.pop_back();
  auto& taken = seats_[index];
  taken.reply = &reply;
  ++taken.generation;
  reply.index_ = index;
  reply.error_ = caf::error{};
  // Never 0, and it stays below the 60 bits that CAF leaves to a request id.
  return caf::make_message_id((uint64_t{taken.generation} << index_bits) | (index + 1));
}

io_reply_base* io_reply_table::take(caf::message_id response) {
  auto id = response.request_id().integer_value();
  auto index = (id & ((uint64_t{1} << index_bits) - 1)) - 1;
  if (index >= seats_.size())
    return nullptr;
  auto& taken = seats_[index];
  if (taken.reply == nullptr || taken.generation != static_cast<uint32_t>(id >> index_bits))
    return nullptr;
  auto reply = taken.reply;
  remove(*reply);
  return reply;
}

void io_reply_table::remove(io_reply_base& reply) noexcept {
  if (!reply.pending())
    return;
  seats_[reply.index_].reply = nullptr;
  free_.push_back(reply.index_);
  reply.index_ = io_reply_base::no_index;
}

io_reply_base* io_reply_table::take_any() noexcept {
  for (auto& taken : seats_) {
    if (auto reply = taken.reply) {
      remove(*reply);
      return reply;
    }
  }
  return nullptr;
}

} // namespace kvasir
