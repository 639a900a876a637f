// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/checksum.hpp"
#include "sim/meddler.hpp"
#include "support/engine_fixture.hpp"

#include <functional>
#include <list>
#include <map>
#include <random>
#include <set>

namespace kvasir::test {

/// Engines and schedulers over a small pool, in a random order of actions and of actor messages.
/// The world keeps what lies in each page, so that it sees whose bytes a reader gets.
///
/// Engines are honest: they commit only what they wrote. But they die, freeze and go on late.
class engine_world : public engine_fixture {
public:
  static constexpr uint64_t pages = 10;
  static constexpr size_t prompt_chunks = 4;

  engine_world(uint64_t seed, plant bug) : engine_fixture(pages), random_(seed) {
    auto between = make_meddler(sim.system(), manager(), bug);
    engine_setup.manager = between;
    auto algorithm = mp::token_hash_algorithm::blake3;
    session_options options{
      mp::token_hasher{algorithm, mp::none_hash(algorithm, ""), chunk_tokens}};
    options.read_ttl = 50s;
    options.session_ttl = 200s;
    caf::anon_send_exit(sessions, caf::exit_reason::user_shutdown);
    sessions = sim.system().spawn<session_table>(between, options);
    sim.run();
    for (uint32_t i = 0; i < 4; ++i) {
      // Two pairs that share their first half.
      auto tokens = make_prompt(1 + i / 2, prompt_chunks);
      for (size_t at = tokens.size() / 2; at < tokens.size(); ++at)
        tokens[at] += i % 2 * 500;
      prompts_.push_back(tokens);
    }
    for (auto i = 0; i < 3; ++i)
      add_engine();
  }

  /// @returns an empty text, or what does not hold
  std::string run(int steps) {
    for (auto i = 0; i < steps && failure_.empty(); ++i) {
      act();
      for (auto messages = pick(6); messages > 0; --messages)
        sim.step();
      look_at_answers();
      check(tier().audit().empty(), "the tier's books: " + tier().audit());
    }
    if (failure_.empty())
      settle();
    return failure_;
  }

  uint64_t stored = 0;
  uint64_t retrieved = 0;
  uint64_t late = 0;
  uint64_t deaths = 0;

private:
  struct worker {
    uint64_t instance = 0;
    bool frozen = false;
    bool dead = false;
    bool inlined = false;
  };

  /// A store or a retrieve between its two steps.
  struct transfer_step {
    uint64_t instance = 0;
    prompt_range what;
    std::vector<std::pair<uint64_t, uint64_t>> slots; ///< Offset, and content of the chunk.
    bool writes = false;
    bool written = false;
  };

  struct open_request {
    std::function<size_t()> answers;
    std::function<void()> done;
  };

  size_t pick(size_t below) {
    return std::uniform_int_distribution<size_t>{0, below - 1}(random_);
  }

  void check(bool holds, const std::string& what) {
    if (!holds && failure_.empty())
      failure_ = what;
  }

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

  // -- what chunks are made of ----------------------------------------------------------

  object_key key_of(const prompt& tokens, size_t chunk) const {
    auto algorithm = mp::token_hash_algorithm::blake3;
    mp::token_chain chain{
      mp::token_hasher{algorithm, mp::none_hash(algorithm, ""), chunk_tokens}};
    chain.extend(tokens);
    mp::chunk_key_prefix prefix{1, page_layout().digest(), "", "model"};
    return prefix.key(chain.chunk(chunk), 0);
  }

  uint64_t content_of(const prompt_range& what, size_t index) const {
    auto key = key_of(what.tokens, what.start / chunk_tokens + index);
    return checksum(std::as_bytes(std::span{key.bytes}));
  }

  void grant(uint64_t offset, uint64_t instance) {
    check(writable_.emplace(offset, instance).second,
          "a slot that somebody may still write was given to another");
  }

  void ungrant(const transfer_step& step) {
    if (step.writes)
      for (auto& [offset, content] : step.slots)
        writable_.erase(offset);
  }

  // -- actions --------------------------------------------------------------------------

  void add_engine() {
    worker made;
    made.instance = ++last_instance_;
    made.inlined = pick(4) == 0;
    workers_.push_back(made);
    engines[made.instance] = sim.system().spawn<engine>(made.instance, sessions, engine_setup);
    begin<void>(engines[made.instance], register_engine{"model", 1, page_layout(), {}, 0},
                [](auto&&) {});
  }

  worker* any_worker() {
    auto& chosen = workers_[pick(workers_.size())];
    return chosen.frozen || chosen.dead ? nullptr : &chosen;
  }

  prompt_range any_range() {
    auto& tokens = prompts_[pick(prompts_.size())];
    auto first = pick(prompt_chunks);
    auto last = first + 1 + pick(prompt_chunks - first);
    // Ids come again with other tokens.
    return range("r" + std::to_string(pick(12)), tokens, first, last);
  }

  void act() {
    switch (pick(16)) {
      case 0:
      case 1:
      case 2:
        return prepare_some();
      case 3:
      case 4:
      case 5:
      case 6:
        return go_on();
      case 7:
      case 8:
        return look_up_some();
      case 9:
      case 10:
        return retrieve_some();
      case 11:
        return end_some();
      case 12:
        return let_time_pass(std::chrono::seconds{1 + pick(25)});
      case 13:
        workers_[pick(workers_.size())].frozen ^= true;
        return;
      case 14:
        return pick(3) == 0 ? lose_one() : go_on();
      case 15:
        if (pick(4) == 0)
          begin<void>(manager(), clear_objects{pick(2) == 0}, [](auto&&) {});
        return;
    }
  }

  void prepare_some() {
    auto who = any_worker();
    if (who == nullptr)
      return;
    auto what = any_range();
    if (who->inlined)
      return store_inline(*who, what);
    begin<store_plan>(
      engines[who->instance], prepare_store{what},
      [this, instance = who->instance, what](auto&& plan) {
        if (!plan || plan->how != transfer::shared || gone(instance))
          return;
        transfer_step step{instance, what, {}, true, false};
        for (auto& slot : plan->slots) {
          grant(slot.where.offset_bytes, instance);
          step.slots.push_back({slot.where.offset_bytes, content_of(what, slot.index)});
        }
        steps_.push_back(step);
      });
  }

  void store_inline(const worker& who, const prompt_range& what) {
    auto dims = page_layout().shape();
    inline_tensor tensor{tensor_dtype::float16, {dims.dims().begin(), dims.dims().end()}};
    auto count = (what.end - what.start) / chunk_tokens;
    auto actor = engines[who.instance];
    begin<inline_store_plan>(
      actor, begin_inline_store{what, std::vector<inline_tensor>(count, tensor)},
      [this, actor, what](auto&& plan) {
        if (!plan || plan->transfer_id == 0)
          return;
        finish_inline_store done{plan->transfer_id, {}};
        transfer_step step{0, what, {}, true, true};
        for (auto& slot : plan->slots) {
          grant(slot.where.offset_bytes, 0);
          step.slots.push_back({slot.where.offset_bytes, content_of(what, slot.index)});
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
      for (auto& [offset, content] : copy.step.slots)
        memory_[offset] = content;
      ungrant(copy.step);
      begin<store_result>(copy.actor, copy.done,
                          [this](auto&& result) { stored += result && result->stored; });
      return;
    }
    if (steps_.empty())
      return;
    auto i = std::next(steps_.begin(), static_cast<ptrdiff_t>(pick(steps_.size())));
    auto who = std::find_if(workers_.begin(), workers_.end(),
                            [&](auto& w) { return w.instance == i->instance; });
    if (who == workers_.end() || who->frozen || who->dead)
      return;
    if (i->writes && !i->written) {
      for (auto& [offset, content] : i->slots)
        memory_[offset] = content;
      i->written = true;
      return;
    }
    auto step = *i;
    steps_.erase(i);
    ungrant(step);
    if (!step.writes) {
      for (auto& [offset, content] : step.slots)
        check(memory_[offset] == content, "a slot changed while it was read");
      begin<void>(engines[step.instance], commit_retrieve{step.what}, [](auto&&) {});
      return;
    }
    auto evicted = tier().usage().evicted_objects + tier().usage().removed;
    begin<store_result>(engines[step.instance], commit_store{step.what},
                        [this, step, evicted](auto&& result) {
                          if (!result)
                            return;
                          stored += result->stored;
                          late += !result->stored;
                          auto usage = tier().usage();
                          for (size_t c = step.what.start / chunk_tokens;
                               result->stored && c < step.what.end / chunk_tokens; ++c)
                            check(tier().present(key_of(step.what.tokens, c))
                                    || usage.evicted_objects + usage.removed != evicted,
                                  "a commit was true although a chunk is not there");
                          seal_chunks sealed;
                          for (auto& lease : result->unsealed)
                            sealed.holds.push_back({lease.id, 7});
                          if (!sealed.holds.empty())
                            begin<void>(manager(), std::move(sealed), [](auto&&) {});
                        });
  }

  void look_up_some() {
    auto what = any_range();
    begin<void>(sessions,
                lookup_prompt{0, "model", 1, "", what.request_id, what.tokens,
                              static_cast<uint32_t>(1 + pick(2))},
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
    auto actor = engines[who->instance];
    begin<retrieve_plan>(
      actor, prepare_retrieve{what},
      [this, instance = who->instance, actor, what](auto&& plan) {
        if (!plan || !plan->success)
          return;
        ++retrieved;
        transfer_step step{instance, what, {}, false, true};
        for (size_t c = 0; c < plan->chunks.size(); ++c) {
          auto offset = plan->chunks[c].where.offset_bytes;
          check(memory_[offset] == content_of(what, c), "a reader got other bytes");
          if (plan->give_slots) // Otherwise the bytes were copied.
            step.slots.push_back({offset, content_of(what, c)});
        }
        if (plan->transfer_id != 0)
          caf::anon_send(actor, finish_inline_retrieve{plan->transfer_id, {}});
        if (!gone(instance))
          steps_.push_back(step);
      });
  }

  void end_some() {
    auto id = "r" + std::to_string(pick(12));
    found_.erase(id);
    begin<void>(sessions, end_session{id}, [](auto&&) {});
  }

  bool gone(uint64_t instance) const {
    return std::none_of(workers_.begin(), workers_.end(),
                        [&](auto& w) { return w.instance == instance && !w.dead; });
  }

  /// Dies, or says goodbye.
  void lose_one() {
    auto& who = workers_[pick(workers_.size())];
    if (who.dead)
      return;
    ++deaths;
    for (auto i = steps_.begin(); i != steps_.end();) {
      if (i->instance != who.instance) {
        ++i;
        continue;
      }
      ungrant(*i);
      i = steps_.erase(i);
    }
    if (pick(2) == 0)
      begin<void>(engines[who.instance], unregister_engine{}, [](auto&&) {});
    else
      caf::anon_send(engines[who.instance], engine_disconnected{});
    who.dead = true;
    add_engine();
  }

  void let_time_pass(std::chrono::seconds time) {
    sim.scheduler().advance_time(time);
    caf::anon_send(sessions, tick{});
    for (auto& who : workers_) {
      if (!who.frozen && !who.dead && pick(2) == 0)
        begin<void>(engines[who.instance], engine_ping{}, [](auto&&) {});
      begin<liveness>(engines[who.instance], check_liveness{},
                      [this, instance = who.instance](auto&& seen) {
                        if (seen && seen->wants_fence && gone(instance))
                          caf::anon_send(engines[instance], fence_engine{});
                      });
    }
  }

  /// Everybody leaves: nothing may be left.
  void settle() {
    auto finish_all = [&] {
      sim.run();
      look_at_answers();
      while (!copies_.empty() || !steps_.empty()) {
        for (auto& who : workers_)
          who.frozen = false;
        go_on();
        sim.run();
        look_at_answers();
      }
    };
    finish_all();
    for (auto i = 0; i < 4; ++i) {
      while (std::any_of(workers_.begin(), workers_.end(), [](auto& w) { return !w.dead; }))
        for (auto& who : workers_)
          if (!std::exchange(who.dead, true))
            begin<void>(engines[who.instance], unregister_engine{}, [](auto&&) {});
      let_time_pass(4000s);
      finish_all();
    }
    check(open_.empty(), "a request was never answered");
    auto now = sim.ask<storage_status>(manager(), get_storage_status{});
    check(now && now->write_leases + now->read_leases + now->expired_leases == 0,
          "leases outlived their owners: " + std::to_string(now->write_leases) + " writes, "
            + std::to_string(now->read_leases) + " reads, "
            + std::to_string(now->expired_leases) + " expired");
    check(now && now->staged_bytes == 0, "staged memory outlived its owners");
  }

  struct copy_step {
    engine_actor actor;
    transfer_step step;
    finish_inline_store done;
  };

  std::mt19937_64 random_;
  std::string failure_;
  std::vector<prompt> prompts_;
  std::vector<worker> workers_;
  uint64_t last_instance_ = 0;
  std::map<uint64_t, uint64_t> memory_;   ///< Content by offset.
  std::map<uint64_t, uint64_t> writable_; ///< Who may write the slot at this offset.
  std::list<transfer_step> steps_;
  std::list<copy_step> copies_;
  std::list<open_request> open_;
  std::map<std::string, std::pair<prompt, uint32_t>> found_;
};

} // namespace kvasir::test
