/// Proves that ThreadSanitizer, with our annotations and suppressions, still sees a race in a
/// handler. Usage: planted_race planted|ordered inline|worker
///
/// One unit writes to plain memory, then another one asks an actor whose handler writes to it
/// too. `planted`: nothing is between the two, so a report must come. `ordered`: the first unit
/// sends the actor a message in between, so none may come. The handler runs on the second
/// unit's thread (`inline`) or on one of CAF's (`worker`).

#include "actors/handover.hpp"
#include "actors/io_unit.hpp"
#include "messages/configure.hpp"
#include "messages/storage_messages.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>
#include <caf/send.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <atomic>
#include <cstdio>
#include <future>
#include <memory>
#include <string_view>
#include <thread>

using namespace kvasir;

namespace {

using toucher_actor
  = caf::typed_actor<caf::replies_to<check_health>::with<void>, caf::reacts_to<continue_work>>;

struct toucher final : toucher_actor::base {
  toucher(caf::actor_config& config, uint64_t& where)
    : toucher_actor::base(config),
      touched(where) {}

  behavior_type make_behavior() override {
    return {
      [this](const check_health&) -> caf::result<void> {
        handover_scope scope{this};
        ++touched;
        return caf::unit;
      },
      [this](const continue_work&) { handover_scope scope{this}; },
    };
  }

  uint64_t& touched;
};

struct idle_task final : io_task {
  explicit idle_task(std::promise<void>& answered) : done(answered) {}
  void run() override { done.set_value(); }
  std::promise<void>& done;
};

} // namespace

int main(int argc, char** argv) {
  if (argc != 3)
    return 2;
  const auto ordered = std::string_view{argv[1]} == "ordered";
  const auto run_inline = std::string_view{argv[2]} == "inline";
  caf::actor_system_config config;
  configure(config);
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", size_t{2});
  config.set("logger.verbosity", caf::atom("quiet"));
  caf::actor_system system{config};
  auto touched = std::make_unique<uint64_t>(0);
  auto actor = system.spawn<toucher, caf::lazy_init>(*touched);
  io_unit first{system};
  io_unit second{system};
  for (auto unit : {&first, &second}) {
    if (run_inline)
      unit->run_inline(actor);
    unit->start();
  }
  // Relaxed: puts the two in an order that happened, but is no reason for one to see the other.
  std::atomic<bool> first_is_done{false};
  std::promise<void> answered;
  idle_task task{answered};
  auto answer = std::make_unique<io_reply<void>>(second, task);
  second.post([&] {
    while (!first_is_done.load(std::memory_order_relaxed))
      std::this_thread::yield();
    second.request(actor, check_health{}, *answer, std::chrono::seconds{60});
    if (!answer->pending())
      answered.set_value();
  });
  first.post([&] {
    ++*touched;
    if (ordered)
      first.send(actor, continue_work{});
    first_is_done.store(true, std::memory_order_relaxed);
  });
  answered.get_future().wait();
  second.stop();
  first.stop();
  answer.reset();
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  std::puts("done");
  return 0;
}
