// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/mp_door.hpp"

#include <utility>

namespace kvasir {

class mp_door::job {
public:
  job(mp_door& door, mp_request the_request, mp::operation the_operation, client_id the_client)
    : request(std::move(the_request)),
      what(the_operation),
      client(the_client),
      door_(&door) {
    ++door.under_way_;
  }

  job(job&& other) noexcept
    : request(std::move(other.request)),
      what(other.what),
      client(other.client),
      door_(std::exchange(other.door_, nullptr)) {}
  job& operator=(job&&) = delete;

  ~job() {
    if (door_ == nullptr)
      return;
    if (auto who = door_->clients_.find(client))
      --who->under_way;
    if (--door_->under_way_ == 0 && door_->on_idle_)
      door_->on_idle_();
  }

  mp_request request;
  mp::operation what;
  client_id client;

private:
  mp_door* door_;
};

/// The range of a key; rank 0 where it names none.
inline prompt_range range_of(mp::cache_key&& key) {
  return {std::move(key.model_name),
          key.world_size,
          key.worker_id.value_or(0),
          std::move(key.cache_salt),
          std::move(key.request_id),
          std::move(key.token_ids),
          key.start,
          key.end};
}

} // namespace kvasir
