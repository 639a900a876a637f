// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/engine_core.hpp"
#include "messages/storage_messages.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace kvasir {

/// Chunks that are held to be read: by a lookup's result, by loads, by tensors. A chunk's hold
/// ends when the last user of this chunk is gone.
///
/// Threading: any thread.
class hold_set {
public:
  /// The creator is a user of all chunks.
  hold_set(std::shared_ptr<engine_core> core, chunk_range range, std::vector<read_lease> leases)
    : core_(std::move(core)),
      range_(std::move(range)),
      leases_(std::move(leases)),
      users_(std::make_unique<std::atomic<uint32_t>[]>(leases_.size())) {
    for (size_t i = 0; i < leases_.size(); ++i)
      users_[i].store(1, std::memory_order_relaxed);
  }

  size_t size() const noexcept { return leases_.size(); }
  const read_lease& lease(size_t i) const { return leases_[i]; }

  std::span<std::byte> bytes(size_t i) const {
    return {core_->pool() + leases_[i].where.offset_bytes, leases_[i].where.size_bytes};
  }

  engine_core& core() const noexcept { return *core_; }
  const std::shared_ptr<engine_core>& shared_core() const noexcept { return core_; }

  void add_user(size_t i) noexcept { users_[i].fetch_add(1, std::memory_order_relaxed); }
  void add_user_of_all() noexcept {
    for (size_t i = 0; i < size(); ++i)
      add_user(i);
  }

  void remove_user(size_t i) {
    if (gone(i))
      core_->end_leases({leases_[i].id});
  }
  void remove_user_of_all() {
    std::vector<lease_id> ended;
    ended.reserve(size());
    for (size_t i = 0; i < size(); ++i)
      if (gone(i))
        ended.push_back(leases_[i].id);
    if (!ended.empty())
      core_->end_leases(std::move(ended));
  }

  /// Chunk `i` differs from its checksum: nobody shall find it any more.
  void drop_corrupt(size_t i) { core_->drop_corrupt(range_.names->key(range_.identities[i])); }

private:
  bool gone(size_t i) noexcept {
    return users_[i].fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  std::shared_ptr<engine_core> core_;
  chunk_range range_;
  std::vector<read_lease> leases_;
  std::unique_ptr<std::atomic<uint32_t>[]> users_;
};

/// One user of all chunks of a set; moves, and is empty then.
class hold_user {
public:
  hold_user() = default;

  /// Takes over the creator's use.
  explicit hold_user(std::shared_ptr<hold_set> set) noexcept : set_(std::move(set)) {}
  hold_user(hold_user&&) noexcept = default;
  hold_user& operator=(hold_user&& other) noexcept {
    if (this != &other) {
      reset();
      set_ = std::move(other.set_);
    }
    return *this;
  }
  ~hold_user() { reset(); }

  hold_user another() const {
    if (set_)
      set_->add_user_of_all();
    return hold_user{set_};
  }

  void reset() {
    if (auto set = std::move(set_))
      set->remove_user_of_all();
  }

  hold_set* operator->() const noexcept { return set_.get(); }
  explicit operator bool() const noexcept { return set_ != nullptr; }
  const std::shared_ptr<hold_set>& shared() const noexcept { return set_; }

private:
  std::shared_ptr<hold_set> set_;
};

} // namespace kvasir
