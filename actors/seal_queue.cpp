#include "actors/seal_queue.hpp"

#include <utility>

namespace kvasir {

std::vector<read_lease> seal_queue::add(std::vector<read_lease> unsealed) {
  for (auto& chunk : unsealed) {
    waiting_bytes_ += chunk.where.size_bytes;
    waiting_.push_back(std::move(chunk));
  }
  std::vector<read_lease> let_go;
  while (waiting_bytes_ > max_held_bytes_) {
    waiting_bytes_ -= waiting_.front().where.size_bytes;
    let_go.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return let_go;
}

std::vector<read_lease> seal_queue::tick() {
  std::vector<read_lease> batch;
  auto moved_bytes = std::exchange(moved_bytes_, 0);
  if (hashing_ || moved_bytes > calm_bytes)
    return batch;
  for (uint64_t bytes = 0; !waiting_.empty() && bytes < batch_bytes;) {
    bytes += waiting_.front().where.size_bytes;
    batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  for (auto& chunk : batch)
    waiting_bytes_ -= chunk.where.size_bytes;
  hashing_ = !batch.empty();
  return batch;
}

} // namespace kvasir
