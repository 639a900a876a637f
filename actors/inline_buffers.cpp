#include "actors/inline_buffers.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace kvasir {

inline_buffers::~inline_buffers() {
  for (auto& each : spare_)
    std::free(each.data);
}

bool inline_buffers::take(client_id client, uint64_t bytes) {
  std::lock_guard guard{mutex_};
  if (taken_bytes_ > 0 && taken_bytes_ + bytes > limit_bytes_)
    return false;
  if (auto i = taken_by_.find(client);
      i != taken_by_.end() && i->second + bytes > limit_bytes_ / 2)
    return false;
  taken_bytes_ += bytes;
  if (client != 0)
    taken_by_[client] += bytes;
  return true;
}

void inline_buffers::give_back(client_id client, uint64_t bytes) {
  std::lock_guard guard{mutex_};
  end_taking(client, bytes);
}

/// @pre the mutex is locked
void inline_buffers::end_taking(client_id client, uint64_t bytes) {
  taken_bytes_ -= bytes;
  auto i = taken_by_.find(client);
  if (i != taken_by_.end() && (i->second -= bytes) == 0)
    taken_by_.erase(i);
}

zmq::message_t inline_buffers::message(client_id client, size_t bytes) {
  buffer chosen;
  {
    std::lock_guard guard{mutex_};
    // Not one that is much too large: it would be missing where it fits.
    auto i = std::find_if(spare_.begin(), spare_.end(), [&](auto& each) {
      return each.bytes >= bytes && each.bytes / 2 <= bytes;
    });
    if (i != spare_.end()) {
      chosen = *i;
      spare_.erase(i);
    }
  }
  if (chosen.data == nullptr)
    chosen = {std::malloc(bytes), bytes, false};
  if (chosen.data == nullptr) {
    give_back(client, bytes);
    return {};
  }
  return {chosen.data, bytes, on_sent,
          new loan{shared_from_this(), client, chosen.bytes, bytes}};
}

/// Runs on ZeroMQ's thread.
void inline_buffers::on_sent(void* data, void* hint) {
  std::unique_ptr<loan> ended{static_cast<loan*>(hint)};
  auto& owner = *ended->owner;
  {
    std::lock_guard guard{owner.mutex_};
    owner.end_taking(ended->client, ended->bytes);
    if (owner.spare_.size() < max_spare) {
      owner.spare_.push_back({data, ended->capacity, false});
      return;
    }
  }
  std::free(data);
}

void inline_buffers::trim() {
  std::vector<buffer> idle;
  {
    std::lock_guard guard{mutex_};
    for (auto& each : spare_)
      if (std::exchange(each.idle, true))
        idle.push_back(each);
    std::erase_if(spare_, [&](auto& each) {
      return std::any_of(idle.begin(), idle.end(),
                         [&](auto& other) { return other.data == each.data; });
    });
  }
  for (auto& each : idle)
    std::free(each.data);
}

} // namespace kvasir
