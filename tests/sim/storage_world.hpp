// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/storage_manager.hpp"
#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "sim/storage_chunk_model.hpp"
#include "sim/storage_counts_model.hpp"
#include "sim/storage_engine_model.hpp"
#include "support/faulty_tier.hpp"
#include "support/joined_engine.hpp"
#include "support/simulation.hpp"

#include <caf/scheduled_actor.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace kvasir::test {

/// Some clients, one storage manager, a small pool and a network that delivers each client's
/// messages in order and otherwise when it likes, in both directions. Everything that happens
/// follows from the seed.
///
/// Clients do what connections do, and more: they write and read in pieces, give up in the
/// middle, end while requests are on their way, release twice, finish what they aborted, and
/// name leases that they never had. What they never do is touch a slot after they let it go.
class storage_world {
public:
  struct outcome {
    std::string failure; ///< Empty: all was well.
    uint64_t steps = 0;
    uint64_t answers = 0;
    uint64_t digest = 0; ///< Of all answers in order.
    storage_status last;
    uint64_t engine_holds = 0; ///< Taken without asking.
  };

  storage_world(uint64_t seed, fault planted) : random_(seed), planted_(planted) {
    auto crowded = seed % 25 == 0; // Enough objects for work in slices.
    pages_ = crowded ? 2400 : between(4, 48);
    auto max_object = crowded ? 64 : between(1, one_in(8) ? pages_ : pages_ / 4);
    storage_manager_options options;
    options.max_object_bytes = max_object * slot_allocator::page_bytes;
    options.max_claimed_bytes = between(2, 4) * max_object * slot_allocator::page_bytes;
    options.max_held_bytes = between(2, 4) * max_object * slot_allocator::page_bytes;
    options.max_waiting = between(1, 8);
    options.max_staged_bytes = between(1, 4) * pages_ * slot_allocator::page_bytes / 4;
    options.max_prefix_held_bytes = between(1, 4) * pages_ * slot_allocator::page_bytes / 4;
    options.revisit_interval = revisit_interval;
    max_object_bytes_ = options.max_object_bytes;
    memory_.resize(pages_);
    auto tier = std::make_unique<pool_tier>(
      pages_ * slot_allocator::page_bytes,
      std::move(*make_eviction_policy(one_in(2) ? "lru" : "s3fifo")));
    index_ = std::move(*object_index::create(between(1, 20)));
    tier->share(*index_, planted == fault::unseen_board ? blind_board_ : board_);
    model_ = std::make_unique<storage_model>(*tier, options);
    sim_.box().observe = [this](uint64_t id, caf::message& answer) {
      on_answer(id, answer);
    };
    auto period = between(1, 40); // Bugs are rarely constant.
    auto faulty = std::make_unique<faulty_tier>(std::move(tier), planted, period);
    caf::actor_config observer_config{nullptr};
    auto observer = caf::make_actor<change_box, caf::strong_actor_ptr>(
      sim_.system().next_actor_id(), sim_.system().node(), &sim_.system(), observer_config,
      [this](const object_change& change) { model_->on_change(change); });
    manager_ = sim_.system().spawn<storage_manager>(
      std::move(faulty), options, caf::actor_cast<object_observer_actor>(observer));
    mailbox_
      = dynamic_cast<caf::scheduled_actor*>(caf::actor_cast<caf::abstract_actor*>(manager_));
    door_ = caf::actor_cast<caf::strong_actor_ptr>(manager_);
    if (planted == fault::lost_reply) {
      caf::actor_config config{nullptr};
      door_ = caf::make_actor<lossy_door, caf::strong_actor_ptr>(
        sim_.system().next_actor_id(), sim_.system().node(), &sim_.system(), config, door_,
        20 * period);
    }
    if (planted == fault::published_expiry) {
      caf::actor_config config{nullptr};
      door_ = caf::make_actor<forgetful_door, caf::strong_actor_ptr>(
        sim_.system().next_actor_id(), sim_.system().node(), &sim_.system(), config, door_,
        period);
    }
    clients_.resize(between(2, 6));
    for (auto& client : clients_)
      client.owner = ++last_owner_;
    engines_.resize(one_in(2) ? 0 : between(1, 3));
    for (auto& engine : engines_)
      engine.side.emplace(*index_, board_);
    usable_pages_ = between(0, pages_);
    send_growth();
    if (crowded)
      fill();
  }

  ~storage_world() {
    caf::anon_send_exit(manager_, caf::exit_reason::user_shutdown);
    manager_ = nullptr;
    door_ = nullptr;
    sim_.run();
    sim_.box().observe = nullptr;
  }

  outcome run(uint64_t steps) {
    outcome result;
    while (result.steps < steps && ok()) {
      ++result.steps;
      step();
    }
    if (ok())
      finish();
    result.failure = model_->failure();
    result.answers = answers_;
    result.digest = digest_;
    result.last = last_status_;
    result.engine_holds = last_engine_hold_;
    return result;
  }

private:
  struct open_write {
    write_lease lease;
    uint64_t tag = 0;
    uint64_t written_pages = 0;
  };

  struct engine_hold {
    uint64_t id = 0;
    indexed_object object;
    uint32_t record = 0;
  };

  struct client_state {
    owner_id owner = 0;
    std::deque<std::pair<uint64_t, storage_request>>
      outgoing{};                                             ///< On their way to the manager.
    std::deque<std::pair<uint64_t, caf::message>> incoming{}; ///< Answers on their way back.
    std::vector<open_write> writes{};
    std::vector<read_lease> reads{};
    std::vector<open_write> chunks{};   ///< Reserved.
    std::vector<open_write> expired{};  ///< It may still write into these.
    std::vector<read_lease> unhashed{}; ///< Held to be hashed.
    std::vector<lease_id> prefix_holds{};
    std::vector<lease_id> spent{}; ///< Leases it ended, to end them again.
  };

  /// A process that reads without asking.
  struct engine_state {
    std::optional<joined_engine> side{};
    std::optional<indexed_object> found{}; ///< On its way to be held ...
    std::optional<uint32_t> published{};   ///< ... and this far.
    std::vector<engine_hold> holds{};
  };

  struct sender {
    size_t client;
    owner_id owner;
  };

  // -- chance ---------------------------------------------------------------------------

  uint64_t between(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }
  bool one_in(uint64_t n) { return random_() % n == 0; }
  object_key any_key() { return {"k" + std::to_string(between(0, 9))}; }

  template <class T>
  T pick(std::vector<T>& from) { // And takes it out.
    std::swap(from[random_() % from.size()], from.back());
    auto result = std::move(from.back());
    from.pop_back();
    return result;
  }

  bool ok() const { return model_->failure().empty(); }

  // -- one step -------------------------------------------------------------------------

  void step() {
    auto who = random_() % clients_.size();
    auto& client = clients_[who];
    auto dice = between(0, 15);
    if (dice > 12)
      act_as_engine();
    else if (dice < 3)
      act(who);
    else if (dice < 6)
      deliver(client);
    else if (dice < 8)
      receive(client);
    else
      handle_one();
    if (usable_pages_ < pages_ && one_in(100)) {
      usable_pages_ = between(usable_pages_, pages_);
      send_growth();
    }
  }

  void send_growth() {
    auto complete = usable_pages_ == pages_ || one_in(20);
    caf::anon_send(manager_, pool_grown{usable_pages_ * slot_allocator::page_bytes, complete});
  }

  /// The network hands one message to the manager's mailbox.
  void deliver(client_state& from) {
    if (from.outgoing.empty())
      return;
    auto [id, request] = std::move(from.outgoing.front());
    from.outgoing.pop_front();
    std::visit([&, id = id](auto& what) { sim_.enqueue(door_, id, std::move(what)); }, request);
  }

  /// The manager handles one message.
  void handle_one() {
    handle_quickly();
    model_->check_invariants();
  }

  void handle_quickly() {
    if (!sim_.scheduler().has_job())
      return;
    if (auto next = mailbox_->peek_at_next_mailbox_element();
        next != nullptr && next->mid.is_request())
      model_->on_handled(next->mid.request_id().integer_value());
    sim_.step();
  }

  void send(size_t who, storage_request what) {
    auto id = ++last_id_;
    senders_.push_back({who, clients_[who].owner});
    model_->on_sent(id, what);
    clients_[who].outgoing.emplace_back(id, std::move(what));
  }

  void on_answer(uint64_t id, caf::message& answer) {
    ++answers_;
    auto text = std::to_string(id) + to_string(answer);
    digest_ = digest_ * 1'099'511'628'211 + std::hash<std::string>{}(text);
    model_->on_answer(id, answer);
    if (answer.match_elements<storage_status>())
      last_status_ = answer.get_as<storage_status>(0);
    clients_[senders_[id - 1].client].incoming.emplace_back(id, answer);
  }

  /// The network hands one answer to its client.
  void receive(client_state& to) {
    if (to.incoming.empty())
      return;
    auto [id, answer] = std::move(to.incoming.front());
    to.incoming.pop_front();
    if (senders_[id - 1].owner != to.owner)
      return; // It gave up meanwhile; the end of that owner is on its way.
    if (answer.match_elements<write_lease>())
      to.writes.push_back({answer.get_as<write_lease>(0), ++last_tag_, 0});
    else if (answer.match_elements<read_lease>()) {
      to.reads.push_back(answer.get_as<read_lease>(0));
      verify(to.reads.back());
    } else {
      receive_chunks(to, answer);
    }
  }

  // -- what clients do ------------------------------------------------------------------

  void act(size_t who) {
    auto& self = clients_[who];
    if (one_in(2))
      return act_on_chunks(who);
    auto dice = between(0, 15);
    if (dice < 2)
      send(who, reserve_write{self.owner, any_key(), any_layout(), any_size()});
    else if (dice < 6)
      send(who, acquire_read{self.owner, any_key()});
    else if (dice < 7 && !self.writes.empty())
      write_piece(self.writes[random_() % self.writes.size()]);
    else if (dice < 10 && !self.writes.empty())
      end_write(who, pick(self.writes));
    else if (dice < 13 && !self.reads.empty())
      end_read(who, pick(self.reads));
    else if (dice == 13)
      ask_something(who);
    else if (dice == 14)
      end_something_spent(who);
    else if (dice == 15)
      do_something_rare(who);
  }

  void do_something_rare(size_t who) {
    auto dice = between(0, 7);
    if (dice < 3)
      send(who, remove_object{any_key()});
    else if (dice < 4)
      send(who, clear_objects{one_in(2)});
    else if (dice < 6)
      send(who, get_storage_status{});
    else
      end_client(who);
  }

  // storage_chunk_clients.hpp
  void act_on_chunks(size_t who);
  void claim_chunks(size_t who);
  void finish_some_chunks(size_t who);
  void end_some_chunks(size_t who);
  void seal_some_chunks(size_t who);
  void end_spent_chunk(size_t who, lease_id id);
  void receive_chunks(client_state& to, caf::message& answer);
  void write_all(open_write& write);
  uint64_t hash(const read_lease& read);
  std::string any_tenant() { return one_in(2) ? "" : one_in(2) ? "a" : "b"; }
  static object_key chunk_key(uint64_t prompt, uint64_t number) {
    return {std::string(1, '\0') + "c" + std::to_string(prompt) + "." + std::to_string(number)};
  }
  std::vector<object_key> any_chunks();

  // storage_engines.hpp
  void act_as_engine();
  void begin_engine_hold(engine_state& self);
  void finish_engine_hold(engine_state& self);
  void end_engine_hold(engine_state& self, const engine_hold& held);
  void end_engine(engine_state& self);
  void verify(const indexed_object& held);
  void pass_time();

  object_layout any_layout() { return {static_cast<int32_t>(between(0, 4)), 1, {}}; }

  uint64_t any_size() {
    if (one_in(30))
      return max_object_bytes_ + between(1, 1 << 20);
    if (one_in(10))
      return between(0, 2); // Less than anything.
    auto most = one_in(2) ? max_object_bytes_ : max_object_bytes_ / 4 + 1;
    return between(1, most);
  }

  static uint64_t first_page(const slot& where) {
    return where.offset_bytes / slot_allocator::page_bytes;
  }
  static uint64_t page_count(const slot& where) {
    return (where.size_bytes + slot_allocator::page_bytes - 1) / slot_allocator::page_bytes;
  }

  void write_piece(open_write& write) {
    auto end = between(write.written_pages, page_count(write.lease.where));
    for (; write.written_pages < end; ++write.written_pages)
      memory_[first_page(write.lease.where) + write.written_pages] = write.tag;
  }

  void end_write(size_t who, open_write write) {
    auto id = write.lease.id;
    if (one_in(4)) {
      send(who, abort_write{id});
    } else {
      while (write.written_pages < page_count(write.lease.where))
        write_piece(write);
      send(who, finish_write{id, write.tag});
    }
    clients_[who].spent.push_back(id);
  }

  void verify(const read_lease& read) {
    if (!read.sealed)
      return;
    for (uint64_t i = 0; i < page_count(read.where); ++i)
      if (memory_[first_page(read.where) + i] != read.checksum)
        return model_->fail("a reader saw bytes of another object, or torn ones");
  }

  void end_read(size_t who, const read_lease& read) {
    verify(read);
    send(who, release_read{read.id, one_in(10)});
    clients_[who].spent.push_back(read.id);
  }

  void ask_something(size_t who) {
    if (one_in(4))
      return send(who, list_objects{one_in(2) ? 0 : between(0, 2000)});
    if (one_in(4))
      return send(who, check_pressure{});
    check_exist question;
    for (auto n = between(0, 3); n > 0; --n)
      question.keys.push_back(any_key());
    send(who, std::move(question));
  }

  void end_something_spent(size_t who) {
    auto& spent = clients_[who].spent;
    auto id = spent.empty() || one_in(4) ? random_() : spent[random_() % spent.size()];
    if (one_in(2))
      return end_spent_chunk(who, id);
    if (one_in(3))
      send(who, finish_write{id, 0});
    else if (one_in(2))
      send(who, abort_write{id});
    else
      send(who, release_read{id, one_in(2)});
  }

  /// It goes away, and comes back under a new name.
  void end_client(size_t who) {
    auto& self = clients_[who];
    for (auto& read : self.reads)
      verify(read);
    self.reads.clear();
    self.writes.clear();
    self.chunks.clear();
    self.expired.clear();
    self.unhashed.clear();
    self.prefix_holds.clear();
    send(who, end_owner{self.owner});
    self.owner = ++last_owner_;
  }

  // -- the beginning and the end --------------------------------------------------------

  /// Publishes thousands of objects of one page.
  void fill() {
    for (uint64_t i = 0; i < usable_pages_ && ok(); ++i) {
      auto tag = ++last_tag_;
      send(0, reserve_write{clients_[0].owner, {"f" + std::to_string(i)}, {}, 1});
      deliver(clients_[0]);
      while (ok() && clients_[0].incoming.empty() && sim_.scheduler().has_job())
        handle_quickly();
      if (clients_[0].incoming.empty())
        return;
      auto answer = std::move(clients_[0].incoming.front().second);
      clients_[0].incoming.pop_front();
      if (!answer.match_elements<write_lease>())
        return;
      auto lease = answer.get_as<write_lease>(0);
      memory_[first_page(lease.where)] = tag;
      send(0, finish_write{lease.id, tag});
      deliver(clients_[0]);
      handle_quickly();
      clients_[0].incoming.clear();
    }
    model_->check_invariants();
  }

  /// All messages arrive, all clients end; then nothing may be left of them.
  void finish() {
    deliver_all();
    usable_pages_ = pages_;
    caf::anon_send(manager_, pool_grown{pages_ * slot_allocator::page_bytes, true});
    for (size_t who = 0; who < clients_.size(); ++who)
      end_client(who);
    deliver_all();
    for (auto& engine : engines_)
      end_engine(engine);
    pass_time();
    send(0, get_storage_status{});
    deliver_all();
    if (!ok())
      return;
    model_->check_end();
    send(0, clear_objects{});
    deliver_all();
    if (ok())
      model_->check_end();
  }

  void deliver_all() {
    for (;;) {
      std::vector<client_state*> busy;
      for (auto& client : clients_)
        if (!client.outgoing.empty())
          busy.push_back(&client);
      if (busy.empty())
        break;
      deliver(*busy[random_() % busy.size()]);
      if (one_in(3))
        handle_one();
    }
    while (ok() && sim_.scheduler().has_job())
      handle_one();
  }

  static constexpr std::chrono::milliseconds revisit_interval{10};

  std::mt19937_64 random_;
  fault planted_;
  std::unique_ptr<object_index> index_; ///< This and the boards outlive the tier.
  hold_board board_;
  hold_board blind_board_; ///< Which no engine joins.
  simulation sim_;
  std::unique_ptr<storage_model> model_;
  storage_manager_actor manager_;
  caf::scheduled_actor* mailbox_ = nullptr;
  caf::strong_actor_ptr door_;
  std::vector<client_state> clients_;
  std::vector<engine_state> engines_;
  uint64_t last_engine_hold_ = 0;
  std::vector<uint64_t> memory_; ///< What each page of the pool holds.
  std::vector<sender> senders_;  ///< By request id - 1.
  uint64_t pages_ = 0;
  uint64_t usable_pages_ = 0;
  uint64_t max_object_bytes_ = 0;
  uint64_t last_id_ = 0;
  uint64_t last_tag_ = 0;
  owner_id last_owner_ = 0;
  uint64_t answers_ = 0;
  uint64_t digest_ = 0;
  storage_status last_status_;
};

} // namespace kvasir::test
