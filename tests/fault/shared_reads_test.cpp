// Engines read the pool without asking, while it changes: they are frozen and killed anywhere.
#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "support/joined_engine.hpp"
#include "support/worker_process.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace kvasir;
using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

constexpr auto page = slot_allocator::page_bytes;
constexpr uint64_t pages = 48;
constexpr uint64_t chunks = 64; // More than there is room for.

object_key chunk(uint64_t number) {
  return {std::string(1, '\0') + std::to_string(number)};
}

struct counts {
  std::atomic<bool> stop;
  std::atomic<uint64_t> holds;    ///< Taken.
  std::atomic<uint64_t> too_late; ///< What was found went before it was held.
  std::atomic<uint64_t> wrong;    ///< Reads of other bytes than were stored.
};

/// What all processes of a test see.
class arena {
public:
  arena() {
    auto* memory
      = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
  }
  ~arena() { munmap(memory_, size_bytes); }
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;

  counts& seen() { return *reinterpret_cast<counts*>(memory_); }

  /// Each word of a slot says whose it is. Written and read as racing processes do.
  void write(const slot& where, uint64_t number) {
    each_word(where, [&](std::atomic<uint64_t>& word, uint64_t i) {
      word.store(expected(where, number, i), std::memory_order_relaxed);
    });
  }

  bool intact(const slot& where, uint64_t number) {
    auto result = true;
    each_word(where, [&](std::atomic<uint64_t>& word, uint64_t i) {
      result &= word.load(std::memory_order_relaxed) == expected(where, number, i);
    });
    return result;
  }

private:
  static constexpr uint64_t size_bytes = (pages + 1) * page;

  static uint64_t expected(const slot& where, uint64_t number, uint64_t i) {
    return where.generation * 1000 + number * 7 + i;
  }

  template <class Function>
  void each_word(const slot& where, Function use) {
    auto* words = reinterpret_cast<std::atomic<uint64_t>*>(memory_ + page + where.offset_bytes);
    for (uint64_t i = 0; i < where.size_bytes / sizeof(uint64_t); i += 8)
      use(words[i], i);
  }

  std::byte* memory_;
};

/// Bugs to plant in an engine or in the daemon.
enum class bug : uint8_t { none, no_second_look, nobody_looks, look_before_hiding };

/// An engine: finds, holds, reads, lets go, as fast as it can.
class reader_process {
public:
  reader_process(const object_index& index, hold_board& board, arena& shared, bug planted,
                 uint64_t seed)
    : engine_(index, board),
      process_([&](letter_channel) { run(shared, planted, seed); }) {}

  worker_process& process() { return process_; }
  uint64_t id() const { return engine_.id(); }

private:
  struct read {
    joined_engine::hold held;
    uint64_t number;
  };

  void run(arena& shared, bug planted, uint64_t seed) {
    std::mt19937_64 random{seed};
    auto& seen = shared.seen();
    std::vector<read> reads;
    auto check = [&](const read& each) {
      seen.wrong += !shared.intact(each.held.object.where, each.number);
    };
    while (!seen.stop) {
      if (auto number = random() % chunks; reads.size() < 1 + random() % 6)
        begin(reads, number, planted, random() % 4 == 0, seen);
      for (auto& each : reads)
        check(each);
      if (!reads.empty() && random() % 2 == 0) {
        std::swap(reads.back(), reads[random() % reads.size()]);
        engine_.release(reads.back().held);
        reads.pop_back();
      }
    }
  }

  void begin(std::vector<read>& reads, uint64_t number, bug planted, bool slowly,
             counts& seen) {
    read next{{}, number};
    if (engine_.find(chunk(number), next.held.object) != joined_engine::found::yes)
      return;
    if (slowly)
      sched_yield();
    auto record = engine_.page().publish(next.held.object.where);
    if (!record)
      return;
    next.held.record = *record;
    if (!engine_.reader().still(next.held.object) && planted != bug::no_second_look) {
      ++seen.too_late;
      return engine_.page().withdraw(*record);
    }
    ++seen.holds;
    engine_.page().touch(next.held.object.entry);
    reads.push_back(next);
  }

  joined_engine engine_;
  worker_process process_;
};

/// The daemon with the real pool tier: publishes, evicts, removes and clears.
class pool_daemon {
public:
  pool_daemon(object_index& index, hold_board& board, arena& shared, bug planted)
    : shared_(shared),
      tier_(pages * page, std::move(*make_eviction_policy("s3fifo"))) {
    tier_.share(index, planted == bug::nobody_looks ? blind_board_ : board);
    tier_.grow(pages * page);
  }

  void step(std::mt19937_64& random) {
    auto number = random() % chunks;
    auto key = chunk(number);
    if (random() % 500 == 0)
      tier_.clear({});
    else if (random() % 20 == 0)
      tier_.remove(key);
    else if (!tier_.contains(key))
      store(key, number, 1 + random() % 3);
    tier_.sweep();
    if (random() % 64 == 0) {
      tier_.revisit();
      CHECK(tier_.audit() == "");
    }
  }

  void check_all_back() {
    tier_.clear({});
    while (tier_.sweep()) {
    }
    tier_.revisit();
    CHECK(tier_.usage().used_bytes == 0);
    CHECK(tier_.usage().limbo_bytes == 0);
    CHECK(tier_.audit() == "");
  }

  tier_usage usage() const { return tier_.usage(); }

private:
  void store(const object_key& key, uint64_t number, uint64_t size_pages) {
    size_t budget = 1000;
    auto object = tier_.reserve({key, {}, size_pages * page}, budget);
    if (!object)
      return; // Engines read too much.
    shared_.write(object->where, number);
    CHECK(!tier_.publish(object->handle, number, memory_tier::conflict::keep));
  }

  arena& shared_;
  hold_board blind_board_;
  pool_tier tier_;
};

/// One slot for each chunk, given from one object to the next by hand: the order of the steps
/// can be wrong.
class bare_daemon {
public:
  bare_daemon(object_index& index, hold_board& board, arena& shared, bug planted)
    : index_(index),
      board_(board),
      shared_(shared),
      planted_(planted),
      slots_(pages) {
    for (uint64_t i = 0; i < pages; ++i)
      publish(i);
  }

  void step(std::mt19937_64& random) {
    auto number = random() % pages;
    auto& mine = slots_[number];
    if (planted_ == bug::look_before_hiding) {
      auto held = board_.is_held(mine.where);
      sched_yield();
      if (held)
        return;
      index_.erase(mine.entry);
    } else {
      index_.freeze(mine.entry);
      sched_yield();
      if (board_.is_held(mine.where))
        return index_.thaw(mine.entry);
      index_.erase(mine.entry);
    }
    publish(number);
  }

  void check_all_back() {
    for (auto& each : slots_)
      CHECK_FALSE(board_.is_held(each.where));
  }

private:
  struct place {
    slot where;
    uint32_t entry = 0;
  };

  void publish(uint64_t number) {
    auto& mine = slots_[number];
    mine.where = {number * page, page, mine.where.generation + 1};
    shared_.write(mine.where, number);
    auto entry = index_.put(digest_of(chunk(number)), mine.where, 0, true);
    REQUIRE(entry);
    mine.entry = *entry;
  }

  object_index& index_;
  hold_board& board_;
  arena& shared_;
  bug planted_;
  std::vector<place> slots_;
};

struct report {
  uint64_t holds = 0;
  uint64_t too_late = 0;
  uint64_t wrong = 0;
  uint64_t kills = 0;
  uint64_t freezes = 0;
  tier_usage usage{};
};

/// Engines and a daemon; the engines are frozen and killed now and then.
template <class Daemon>
class life {
public:
  life(bug planted, uint64_t seed)
    : planted_(planted),
      random_(seed),
      index_(std::move(*object_index::create(pages))),
      daemon_(*index_, board_, shared_, planted) {
    for (auto& each : readers_)
      each = join();
  }

  Daemon& daemon() { return daemon_; }

  /// Until `enough` is true; the test fails if that takes too long.
  template <class Predicate>
  report run(Predicate enough) {
    auto deadline = std::chrono::steady_clock::now() + 300s; // Beside other work it is slow.
    while (!enough(summary())) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      for (auto i = 0; i < 50; ++i)
        daemon_.step(random_);
      meddle(readers_[random_() % readers_.size()]);
    }
    return summary();
  }

  /// All engines end; those that are frozen, by force.
  report end() {
    shared_.seen().stop = true;
    for (auto& each : readers_) {
      if (each.frozen)
        each.reader->process().kill();
      CHECK((each.frozen || each.reader->process().join() == 0));
      board_.remove(each.reader->id());
    }
    daemon_.check_all_back();
    return summary();
  }

private:
  struct seat {
    std::unique_ptr<reader_process> reader;
    bool frozen = false;
  };

  seat join() {
    return {std::make_unique<reader_process>(*index_, board_, shared_, planted_, random_()),
            false};
  }

  void meddle(seat& who) {
    if (random_() % 40 == 0) {
      who.reader->process().kill();
      board_.remove(who.reader->id());
      who = join();
      ++report_.kills;
    } else if (who.frozen) {
      who.reader->process().thaw();
      who.frozen = false;
    } else if (random_() % 10 == 0) {
      who.reader->process().freeze();
      who.frozen = true;
      ++report_.freezes;
    }
  }

  report summary() {
    auto& seen = shared_.seen();
    report_.holds = seen.holds;
    report_.too_late = seen.too_late;
    report_.wrong = seen.wrong;
    return report_;
  }

  bug planted_;
  std::mt19937_64 random_;
  arena shared_;
  std::unique_ptr<object_index> index_;
  hold_board board_;
  Daemon daemon_;
  std::array<seat, 3> readers_;
  report report_;
};

/// Much, or something that must not.
auto happened(uint64_t freezes) {
  return [freezes](const report& so_far) {
    return so_far.wrong > 0
           || (so_far.holds >= 1000 * freezes && so_far.too_late >= freezes / 4
               && so_far.kills >= freezes / 2 && so_far.freezes >= freezes);
  };
}

bool found(const report& so_far) {
  return so_far.wrong > 0;
}

} // namespace

TEST_CASE("engines never read another object's bytes, however the pool changes and they die") {
  life<pool_daemon> real{bug::none, 1};
  real.run(happened(100));
  auto all = real.end();
  auto usage = real.daemon().usage();
  CHECK(all.wrong == 0);
  CHECK(usage.evicted_objects > 1000);
  CHECK(usage.skipped_evictions > 100);
  CHECK(usage.touches > 1000);
  MESSAGE(all.holds, " holds, ", all.too_late, " too late, ", all.kills, " engines killed, ",
          all.freezes, " frozen, ", usage.evicted_objects, " evictions, ",
          usage.skipped_evictions, " skipped");
}

TEST_CASE("the steps of a daemon in the right order never let an engine read wrong bytes") {
  life<bare_daemon> bare{bug::none, 2};
  bare.run(happened(10));
  CHECK(bare.end().wrong == 0);
}

TEST_CASE("each planted bug lets an engine read wrong bytes soon") {
  SUBCASE("an engine that does not look again") {
    life<pool_daemon>{bug::no_second_look, 3}.run(found);
  }
  SUBCASE("a daemon that does not look at what engines hold") {
    life<pool_daemon>{bug::nobody_looks, 4}.run(found);
  }
  SUBCASE("a daemon that looks before it hides the object") {
    life<bare_daemon>{bug::look_before_hiding, 5}.run(found);
  }
}
