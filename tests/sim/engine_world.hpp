// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "sim/engine_clients.hpp"
#include "sim/meddler.hpp"

namespace kvasir::test {

/// Engines and schedulers over a small pool, in a random order of actions and of actor messages.
/// An oracle keeps what lies in each page, so that one sees whose bytes a reader gets.
///
/// Engines die, freeze and go on late, leave and come back; some cannot map the pool; and in some
/// worlds token hashes collide, few sessions have room, or an instance may hold little.
class engine_world : public engine_clients {
public:
  engine_world(uint64_t seed, plant bug) : engine_clients(seed, hash_bits_of(seed)), bug_(bug) {
    auto between = make_meddler(sim.system(), manager(), bug);
    engine_setup.manager = between;
    if (seed % 5 == 0)
      engine_setup.max_handed_out_bytes = 3 * page;
    auto options = usual_sessions(hash_bits_of(seed));
    options.read_ttl = 50s;
    options.session_ttl = 200s;
    if (seed % 4 == 0)
      options.max_sessions = 3;
    replace_sessions(between, options);
    sessions = make_meddler(sim.system(), sessions, bug);
    for (uint64_t i = 0; i <= seed % 3; ++i)
      add_engine();
  }

  /// @returns an empty text, or what does not hold
  std::string run(int steps) {
    for (auto i = 0; i < steps && failure().empty(); ++i) {
      act();
      for (auto messages = pick(12); messages > 0; --messages)
        step_any();
      look_at_answers();
      check(tier().audit().empty(), "the tier's books: " + tier().audit());
    }
    if (failure().empty())
      settle();
    return failure();
  }

private:
  /// Any actor may be the next; each handles its own messages in their order.
  void step_any() {
    auto& jobs = sim.scheduler().jobs;
    if (!jobs.empty())
      std::swap(jobs.front(), jobs[pick(jobs.size())]);
    sim.step();
  }

  static unsigned hash_bits_of(uint64_t seed) { return seed % 3 == 0 ? 1 : 256; }

  void act() {
    switch (pick(20)) {
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
        any_living().frozen ^= true;
        return;
      case 14:
        return pick(3) == 0 ? lose_one() : go_on();
      case 15:
        if (pick(4) == 0)
          begin<void>(manager(), clear_objects{pick(2) == 0}, [](auto&&) {});
        return;
      case 16:
        return free_some();
      case 17:
        return see_whether_attached();
      case 18:
        return pick(2) == 0 ? come_back() : retrieve_some();
      case 19:
        return retrieve_some();
    }
  }

  // -- lives ----------------------------------------------------------------------------

  void add_engine() {
    worker made;
    made.instance = ++last_instance_;
    made.inlined = pick(4) == 0;
    start(made, sim.system().spawn<engine>(made.instance, sessions, engine_setup));
  }

  void start(worker made, const engine_actor& actor) {
    made.id = ++last_worker_;
    workers_.push_back(made);
    engines[made.id] = actor;
    register_one(made);
  }

  void register_one(const worker& who) {
    begin<void>(engines[who.id], register_engine{"model", 1, page_layout(), {}, 0},
                [this, id = who.id](auto&& result) {
                  check(result || gone(id), "a registration was refused");
                });
  }

  /// What the door sees of the segment.
  void see_whether_attached() {
    if (auto who = any_worker())
      caf::anon_send(engines[who->id], attach_seen{!who->inlined});
  }

  /// Registers once more; or leaves and registers again, by the same actor or by another one while
  /// the former has not heard of it yet.
  void come_back() {
    auto who = any_worker();
    if (who == nullptr)
      return;
    ++returns;
    auto how = pick(3);
    if (how == 0) {
      register_one(*who);
      return;
    }
    auto again = *who;
    auto actor = engines[who->id];
    leave(*who);
    if (how == 1)
      actor = sim.system().spawn<engine>(again.instance, sessions, engine_setup);
    start(again, actor);
  }

  void leave(worker& who) {
    drop_steps(who.id);
    begin<void>(engines[who.id], unregister_engine{}, [](auto&&) {});
    who.dead = who.left = true;
  }

  /// Dies, or says goodbye.
  void lose_one() {
    auto& who = any_living();
    ++deaths;
    if (pick(2) == 0) {
      leave(who);
    } else {
      drop_steps(who.id);
      caf::anon_send(engines[who.id], engine_disconnected{});
      who.dead = true;
    }
    add_engine();
  }

  void let_time_pass(std::chrono::seconds time) {
    sim.scheduler().advance_time(time);
    caf::anon_send(sessions, tick{});
    for (auto& who : workers_) {
      if (!who.frozen && !who.dead && pick(2) == 0)
        begin<void>(engines[who.id], engine_ping{}, [](auto&&) {});
      begin<liveness>(
        engines[who.id], check_liveness{}, [this, actor = engines[who.id]](auto&& seen) {
          if (seen && seen->wants_fence && (bug_ == plant::early_fence || all_gone(actor)))
            caf::anon_send(actor, fence_engine{});
        });
    }
  }

  /// Whether no process of this actor's registrations lives.
  bool all_gone(const engine_actor& actor) const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [&](auto& w) { return w.dead || engines.at(w.id) != actor; });
  }

  // -- the end --------------------------------------------------------------------------

  void finish_all() {
    sim.run();
    look_at_answers();
    while (!copies_.empty() || !steps_.empty()) {
      for (auto& who : workers_)
        who.frozen = false;
      go_on();
      sim.run();
      look_at_answers();
    }
  }

  /// Everybody is served, then everybody leaves: nothing may be left.
  void settle() {
    finish_all();
    for (auto& who : workers_)
      if (!who.dead)
        begin<store_plan>(
          engines[who.id], prepare_store{range("last", prompts_[0], 0, 0)},
          [this](auto&& plan) { check(bool{plan}, "a registered engine is not served"); });
    finish_all();
    check_idle();
    for (auto& who : workers_)
      if (!who.dead)
        leave(who);
    finish_all();
    check_left();
    for (auto i = 0; i < 4; ++i) {
      let_time_pass(4000s);
      finish_all();
    }
    check(open_.empty(), "a request was never answered");
    check_storage();
    check_engines();
  }

  /// All that was begun has its commit, or its worker is gone.
  void check_idle() {
    for (auto& who : workers_) {
      auto seen = sim.ask<engine_status>(engines[who.id], get_engine_status{});
      if (!who.dead)
        check(seen && seen->pending_writes + seen->pending_reads == 0,
              "slots are out although all was committed");
    }
  }

  void check_left() {
    for (auto who = workers_.begin(); who != workers_.end(); ++who) {
      auto is_last = std::none_of(std::next(who), workers_.end(), [&](auto& later) {
        return engines.at(later.id) == engines.at(who->id);
      });
      auto seen = sim.ask<engine_status>(engines[who->id], get_engine_status{});
      if (is_last && who->left)
        check(seen && !seen->registered, "an instance is registered that left");
    }
  }

  void check_storage() {
    auto now = sim.ask<storage_status>(manager(), get_storage_status{});
    check(now && now->write_leases + now->read_leases + now->expired_leases == 0,
          "leases outlived their owners: " + std::to_string(now->write_leases) + " writes, "
            + std::to_string(now->read_leases) + " reads, "
            + std::to_string(now->expired_leases) + " expired");
    check(now && now->staged_bytes == 0, "staged memory outlived its owners");
  }

  void check_engines() {
    auto now = sim.ask<session_status>(sessions, get_session_status{});
    check(now && now->sessions + now->lookups_open + now->token_bytes == 0,
          "a session outlived its time");
    check(now && now->layouts == 0, "a layout outlived the instances that used it");
    for (auto& [id, actor] : engines) {
      auto seen = sim.ask<engine_status>(actor, get_engine_status{});
      check(seen && seen->handed_out_bytes + seen->quarantined_bytes == 0,
            "what an instance holds is miscounted");
    }
  }

  plant bug_;
  uint64_t last_instance_ = 0;
  uint64_t last_worker_ = 0;
};

} // namespace kvasir::test
