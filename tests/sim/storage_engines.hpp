// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/storage_world.hpp"

/// What engines do that joined: they read without asking, between any two messages, in steps of
/// their own, and die.
namespace kvasir::test {

inline void storage_world::act_as_engine() {
  if (one_in(20))
    pass_time();
  if (engines_.empty())
    return;
  auto& self = engines_[random_() % engines_.size()];
  auto dice = between(0, 29);
  if (dice < 15 && self.holds.size() < 4)
    self.found ? finish_engine_hold(self) : begin_engine_hold(self);
  else if (dice < 25 && !self.holds.empty())
    end_engine_hold(self, pick(self.holds));
  else if (dice < 28)
    self.side->page().touch(static_cast<uint32_t>(random_() % (2 * index_->entry_count())));
  else if (dice == 29 && one_in(8)) {
    end_engine(self);
    self.side.emplace(*index_, board_);
  }
}

inline void storage_world::begin_engine_hold(engine_state& self) {
  auto key = chunk_key(between(0, 2), between(0, 5));
  indexed_object object;
  auto answer = self.side->find(key, object);
  model_->check_found(key, answer, object, index_->overflowed_sets() > 0);
  if (answer == object_index_reader::found::yes)
    self.found = object;
}

/// First the record, then, later, the second look.
inline void storage_world::finish_engine_hold(engine_state& self) {
  if (!self.published) {
    self.published = self.side->page().publish(self.found->where);
    return;
  }
  engine_hold held{++last_engine_hold_, *self.found, *self.published};
  self.found.reset();
  self.published.reset();
  if (!self.side->reader().still(held.object) && planted_ != fault::unchecked_hold) {
    self.side->page().withdraw(held.record);
    return;
  }
  self.side->page().touch(held.object.entry);
  verify(held.object);
  model_->on_engine_hold(held.id, held.object.where);
  self.holds.push_back(held);
}

inline void storage_world::end_engine_hold(engine_state& self, const engine_hold& held) {
  verify(held.object);
  model_->on_engine_release(held.id);
  self.side->page().withdraw(held.record);
}

/// It is killed, and the daemon learns of it.
inline void storage_world::end_engine(engine_state& self) {
  for (auto& held : self.holds) {
    verify(held.object);
    model_->on_engine_release(held.id);
  }
  board_.remove(self.side->id());
  self = {};
}

/// The bytes of a chunk must all be of one writer, of the right one if it is known.
inline void storage_world::verify(const indexed_object& held) {
  auto pages = page_count(held.where);
  auto tag = held.sealed || pages == 0 ? held.checksum : memory_[first_page(held.where)];
  for (uint64_t i = 0; i < pages; ++i)
    if (memory_[first_page(held.where) + i] != tag)
      return model_->fail("an engine saw bytes of another object, or torn ones");
}

/// As long as it takes until the manager looks at what engines let go.
inline void storage_world::pass_time() {
  sim_.scheduler().advance_time(revisit_interval);
  while (ok() && sim_.scheduler().has_job())
    handle_one();
}

} // namespace kvasir::test
