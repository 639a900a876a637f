// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/engine_oracle.hpp"

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kvasir::test {

/// What workers and schedulers of engines ask for in an engine world, and what they make of the
/// answers. Workers are honest: they commit only what they wrote.
class engine_clients : public engine_fixture {
public:
  uint64_t stored = 0;
  uint64_t retrieved = 0;
  uint64_t late = 0;
  uint64_t deaths = 0;
  uint64_t returns = 0;

protected:
  static constexpr uint64_t pages = 10;
  static constexpr size_t prompt_chunks = 4;

  /// One registration of an instance. Whoever comes back is another one, by the same actor or not.
  struct worker {
    uint64_t id = 0;
    uint64_t instance = 0;
    bool frozen = false;
    bool dead = false;
    bool left = false;    ///< It unregistered.
    bool inlined = false; ///< It cannot map the pool.
  };

  /// A store or a retrieve between its two steps.
  struct transfer_step {
    uint64_t worker = 0;
    prompt_range what;
    std::vector<std::pair<uint64_t, uint64_t>> slots; ///< Offset, and content of the chunk.
    bool writes = false;
    bool written = false;
  };

  struct open_request {
    std::function<size_t()> answers;
    std::function<void()> done;
  };

  struct copy_step {
    engine_actor actor;
    transfer_step step;
    finish_inline_store done;
  };

  engine_clients(uint64_t seed, unsigned hash_bits)
    : engine_fixture(pages),
      oracle_(hash_bits),
      random_(seed) {
    for (uint32_t i = 0; i < 4; ++i) {
      // Two pairs that share their first half.
      auto tokens = make_prompt(1 + i / 2, prompt_chunks);
      for (size_t at = tokens.size() / 2; at < tokens.size(); ++at)
        tokens[at] += i % 2 * 500;
      prompts_.push_back(tokens);
    }
  }

  size_t pick(size_t below) {
    return std::uniform_int_distribution<size_t>{0, below - 1}(random_);
  }

  const std::string& failure() const { return oracle_.failure(); }
  void check(bool holds, const std::string& what) { oracle_.check(holds, what); }

  template <class Result, class Handle, class Message, class Done>
  void begin(const Handle& actor, Message message, Done done) {
    auto answer = sim.start<Result>(actor, std::move(message));
    open_.push_back({[answer] { return answer.count(); },
                     [answer, done] {
                       done(answer.get());
                     }});
  }

  void look_at_answers() {
    for (auto i = open_.begin(); i != open_.end();) {
      auto count = i->answers();
      check(count <= 1, "a request was answered twice");
      if (count == 0) {
        ++i;
        continue;
      }
      auto done = std::move(i->done);
      i = open_.erase(i);
      done();
    }
  }

  bool gone(uint64_t id) const {
    return std::none_of(workers_.begin(), workers_.end(),
                        [&](auto& w) { return w.id == id && !w.dead; });
  }

  // -- transfers under way --------------------------------------------------------------

  void ungrant(const transfer_step& step) {
    if (step.writes)
      for (auto& [offset, content] : step.slots)
        oracle_.ungrant(offset);
  }

  void write(const transfer_step& step) {
    for (auto& [offset, content] : step.slots)
      oracle_.write(offset, content);
  }

  /// It does not touch its slots any more.
  void drop_steps(uint64_t id) {
    for (auto i = steps_.begin(); i != steps_.end();) {
      if (i->worker != id) {
        ++i;
        continue;
      }
      ungrant(*i);
      i = steps_.erase(i);
    }
  }

  // -- stores and retrieves -------------------------------------------------------------

  /// There is always one that lives.
  worker& any_living() {
    std::vector<worker*> living;
    for (auto& who : workers_)
      if (!who.dead)
        living.push_back(&who);
    return *living[pick(living.size())];
  }

  /// Null: the one that was chosen is frozen.
  worker* any_worker() {
    auto& chosen = any_living();
    return chosen.frozen ? nullptr : &chosen;
  }

  prompt_range any_range() {
    auto& tokens = prompts_[pick(prompts_.size())];
    auto first = pick(prompt_chunks);
    auto last = first + 1 + pick(prompt_chunks - first);
    // Ids come again with other tokens.
    return range("r" + std::to_string(pick(12)), tokens, first, last);
  }

  void prepare_some() {
    auto who = any_worker();
    if (who == nullptr)
      return;
    auto what = any_range();
    if (who->inlined)
      return store_inline(*who, what);
    begin<store_plan>(
      engines[who->id], prepare_store{what}, [this, id = who->id, what](auto&& plan) {
        if (!plan || plan->how != transfer::shared || gone(id))
          return;
        transfer_step step{id, what, {}, true, false};
        for (auto& slot : plan->slots) {
          oracle_.grant(slot.where.offset_bytes);
          step.slots.push_back({slot.where.offset_bytes, oracle_.content_of(what, slot.index)});
        }
        steps_.push_back(step);
      });
  }

  void store_inline(const worker& who, const prompt_range& what) {
    auto dims = page_layout().shape();
    inline_tensor tensor{tensor_dtype::float16, {dims.dims().begin(), dims.dims().end()}};
    auto count = (what.end - what.start) / chunk_tokens;
    auto actor = engines[who.id];
    begin<inline_store_plan>(
      actor, begin_inline_store{what, std::vector<inline_tensor>(count, tensor)},
      [this, actor, what](auto&& plan) {
        if (!plan || plan->transfer_id == 0)
          return;
        finish_inline_store done{plan->transfer_id, {}};
        transfer_step step{0, what, {}, true, true};
        for (auto& slot : plan->slots) {
          oracle_.grant(slot.where.offset_bytes);
          step.slots.push_back({slot.where.offset_bytes, oracle_.content_of(what, slot.index)});
          done.writes.push_back({slot.lease, 1});
        }
        copies_.push_back({actor, step, done});
      });
  }

  /// The next step of a transfer, or the end of a copy.
  void go_on() {
    if (!copies_.empty() && pick(2) == 0) {
      auto copy = std::move(copies_.front());
      copies_.pop_front();
      write(copy.step);
      ungrant(copy.step);
      begin<store_outcome>(copy.actor, copy.done,
                           [this](auto&& result) { stored += result && result->stored; });
      return;
    }
    if (steps_.empty())
      return;
    auto i = std::next(steps_.begin(), static_cast<ptrdiff_t>(pick(steps_.size())));
    auto who = std::find_if(workers_.begin(), workers_.end(),
                            [&](auto& w) { return w.id == i->worker; });
    if (who == workers_.end() || who->frozen || who->dead)
      return;
    if (i->writes && !i->written) {
      write(*i);
      i->written = true;
      return;
    }
    auto step = *i;
    steps_.erase(i);
    ungrant(step);
    if (!step.writes) {
      for (auto& [offset, content] : step.slots)
        oracle_.read(offset, content, "a slot changed while it was read");
      begin<void>(engines[step.worker], commit_retrieve{step.what}, [](auto&&) {});
      return;
    }
    auto evicted = tier().usage().evicted_objects + tier().usage().removed;
    begin<store_outcome>(engines[step.worker], commit_store{step.what},
                         [this, step, evicted](auto&& result) {
                           if (!result)
                             return;
                           stored += result->stored;
                           late += !result->stored;
                           auto usage = tier().usage();
                           for (size_t c = step.what.start / chunk_tokens;
                                result->stored && c < step.what.end / chunk_tokens; ++c)
                             check(tier().present(oracle_.key_of(step.what.tokens, c))
                                     || usage.evicted_objects + usage.removed != evicted,
                                   "a commit was true although a chunk is not there");
                           seal_chunks sealed;
                           for (auto& lease : result->unsealed)
                             sealed.holds.push_back({lease.id, 7});
                           if (!sealed.holds.empty())
                             begin<void>(manager(), std::move(sealed), [](auto&&) {});
                         });
  }

  // -- lookups ---------------------------------------------------------------------------

  void look_up_some() {
    auto what = any_range();
    auto readers = static_cast<uint32_t>(1 + pick(2));
    oracle_.announce(what.request_id, what.tokens, readers);
    begin<void>(
      sessions,
      lookup_prompt{1 + pick(2), "model", 1, "", what.request_id, what.tokens, readers},
      [](auto&&) {});
    begin<lookup_result>(sessions, take_lookup_result{what.request_id, true},
                         [this, what](auto&& result) {
                           if (result && result->chunks > 0)
                             found_[what.request_id] = {what.tokens, result->chunks};
                         });
  }

  void retrieve_some() {
    auto who = any_worker();
    if (who == nullptr || found_.empty())
      return;
    auto i = std::next(found_.begin(), static_cast<ptrdiff_t>(pick(found_.size())));
    auto what = range(i->first, i->second.first, 0, i->second.second);
    auto actor = engines[who->id];
    begin<retrieve_plan>(
      actor, prepare_retrieve{what},
      [this, id = who->id, inlined = who->inlined, actor, what](auto&& plan) {
        if (plan && plan->success)
          read_some(id, inlined, actor, what, *plan);
      });
  }

  void read_some(uint64_t id, bool inlined, const engine_actor& actor, const prompt_range& what,
                 const retrieve_plan& plan) {
    ++retrieved;
    oracle_.retrieve(what);
    transfer_step step{id, what, {}, false, true};
    for (size_t c = 0; c < plan.chunks.size(); ++c) {
      auto offset = plan.chunks[c].where.offset_bytes;
      auto content = oracle_.content_of(what, c);
      // Of one who left nothing is held but what is copied for it.
      if (!gone(id) || plan.transfer_id != 0)
        oracle_.read(offset, content, "a reader got other bytes");
      if (plan.give_slots && !inlined) // Otherwise the bytes were copied.
        step.slots.push_back({offset, content});
    }
    if (plan.transfer_id != 0)
      caf::anon_send(actor, finish_inline_retrieve{plan.transfer_id, {}});
    if (!gone(id))
      steps_.push_back(step);
  }

  /// Retrieves that will not follow, also of what was never found.
  void free_some() {
    auto what = any_range();
    if (!found_.empty() && pick(4) != 0) {
      auto i = std::next(found_.begin(), static_cast<ptrdiff_t>(pick(found_.size())));
      what = range(i->first, i->second.first, pick(2), prompt_chunks);
    }
    begin<void>(sessions, free_lookup{what, static_cast<uint32_t>(1 + pick(2))}, [](auto&&) {});
  }

  void end_some() {
    auto id = "r" + std::to_string(pick(12));
    found_.erase(id);
    if (pick(4) == 0)
      caf::anon_send(sessions, client_gone{1 + pick(2)});
    else
      begin<void>(sessions, end_session{id}, [](auto&&) {});
  }

  engine_oracle oracle_;
  std::mt19937_64 random_;
  std::vector<prompt> prompts_;
  std::vector<worker> workers_;
  std::list<transfer_step> steps_;
  std::list<copy_step> copies_;
  std::list<open_request> open_;
  /// What lookups found, by request id.
  std::map<std::string, std::pair<prompt, uint32_t>> found_;
};

} // namespace kvasir::test
