#include "actors/node.hpp"

#include "actors/http_server.hpp"
#include "actors/join_door.hpp"
#include "actors/log.hpp"
#include "actors/pool_keeper.hpp"
#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "messages/configure.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <thread>

namespace kvasir {

namespace {

constexpr std::chrono::seconds status_deadline{2};
constexpr std::chrono::seconds close_deadline{1};
constexpr std::chrono::milliseconds shortest_tick{50};
constexpr std::chrono::milliseconds longest_tick{5'000};
/// What a message has beside its chunks: pickle's pieces, and the prompt's tokens.
constexpr uint64_t inline_frame_slack_bytes = 64ull << 20;
/// Chunks that are smaller on average may not all be found without asking.
constexpr uint64_t bytes_per_indexed_object = 64 << 10;
constexpr uint64_t least_indexed_objects = 4096;
constexpr std::chrono::milliseconds revisit_interval{20};
constexpr uint64_t largest_object_bytes = 1ull << 30;

std::string random_hex_128() {
  std::random_device random;
  std::string result;
  for (auto i = 0; i < 4; ++i) {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", random());
    result += digits.data();
  }
  return result;
}

/// What stands in for the hash before a prompt's first chunk.
mp::token_hash first_hash(const node_config& config) {
  auto random = config.token_hash == mp::token_hash_algorithm::sha256_cbor
                && config.token_hash_seed.empty();
  if (!random)
    return mp::none_hash(config.token_hash, config.token_hash_seed);
  mp::token_hash result{};
  std::random_device source;
  for (auto& byte : result)
    byte = static_cast<std::byte>(source());
  return result;
}

/// What a ping is answered with: never 0, which clients would take for false.
uint64_t boot_number(const std::string& boot_id) {
  return std::stoull(boot_id.substr(0, 16), nullptr, 16) | 1;
}

unsigned thread_count(unsigned configured) {
  if (configured > 0)
    return configured;
  return std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
}

/// Wakes up whoever watches `fd` when one of the parts it monitors dies.
caf::behavior supervisor(caf::event_based_actor* self, int fd, std::vector<caf::actor> parts) {
  self->set_down_handler([self, fd](caf::down_msg& down) {
    if (down.reason == caf::exit_reason::user_shutdown)
      return;
    log::write(log::level::error, "a part of the node died",
               {{"reason", self->system().render(down.reason)}});
    const uint64_t one = 1;
    [[maybe_unused]] auto written = write(fd, &one, sizeof(one));
  });
  for (auto& part : parts)
    self->monitor(part);
  return {[](int) {
  }};
}

} // namespace

node::node(const node_config& config)
  : config_(config),
    boot_id_(random_hex_128()),
    started_(std::chrono::steady_clock::now()),
    first_hash_(first_hash(config)),
    failure_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  auto bare_v6 = config_.host.find(':') != std::string::npos && config_.host.front() != '[';
  host_text_ = bare_v6 ? "[" + config_.host + "]" : config_.host;
  if (config_.max_object_bytes == 0)
    config_.max_object_bytes = std::min(config_.pool_bytes / 4, largest_object_bytes);
}

node::~node() {
  stop(std::chrono::milliseconds{0});
  close(failure_fd_);
}

caf::expected<std::unique_ptr<node>> node::start(const node_config& config) {
  std::unique_ptr<node> result{new node(config)};
  if (auto failure = result->open())
    return failure;
  return result;
}

caf::error node::open() {
  if (auto failure = open_pool())
    return failure;
  system_config_ = std::make_unique<caf::actor_system_config>();
  configure(*system_config_);
  // The scheduler only runs what the I/O units hand it: it should sleep, not poll.
  system_config_->set("scheduler.policy", caf::atom("sharing"));
  system_config_->set("scheduler.max-threads", size_t{2});
  system_config_->set("logger.verbosity", caf::atom("quiet"));
  system_ = std::make_unique<caf::actor_system>(*system_config_);
  if (config_.mp_port) {
    event_log_options events;
    events.incarnation = boot_number(boot_id_);
    events.max_events = config_.event_history;
    events_ = system_->spawn<kv_event_log>(events);
  }
  if (auto failure = start_manager())
    return failure;
  for (unsigned i = 0; i < thread_count(config_.io_threads); ++i) {
    units_.push_back(std::make_shared<io_unit>(*system_));
    units_.back()->run_inline(manager_);
    if (events_)
      units_.back()->run_inline(events_);
    units_.back()->start();
  }
  // The first step shows whether there is any memory at all: without, do not start.
  if (auto usable = pool_->grow(); !usable)
    return std::move(usable.error());
  keeper_ = std::make_unique<pool_keeper>(*pool_, manager_);
  if (auto failure = open_lm_door())
    return failure;
  if (auto failure = open_mp_door())
    return failure;
  if (auto failure = open_join_door())
    return failure;
  std::vector<caf::actor> parts{caf::actor_cast<caf::actor>(manager_)};
  if (lm_server_)
    parts.push_back(caf::actor_cast<caf::actor>(lm_server_));
  if (mp_server_) {
    parts.push_back(caf::actor_cast<caf::actor>(sessions_));
    parts.push_back(caf::actor_cast<caf::actor>(events_));
    parts.push_back(caf::actor_cast<caf::actor>(mp_server_));
  }
  supervisor_ = system_->spawn(supervisor, failure_fd_, std::move(parts));
  return open_http_door();
}

caf::error node::start_manager() {
  auto policy = make_eviction_policy(config_.eviction);
  if (!policy)
    return std::move(policy.error());
  auto tier = std::make_unique<pool_tier>(pool_->capacity_bytes(), std::move(*policy));
  auto options = make_storage_options(config_.pool_bytes, config_.max_object_bytes);
  if (!config_.engine_socket.empty()) {
    auto index = object_index::create(
      std::max(config_.pool_bytes / bytes_per_indexed_object, least_indexed_objects));
    if (!index)
      return std::move(index.error());
    index_ = std::move(*index);
    tier->share(*index_, board_);
    options.revisit_interval = revisit_interval;
  }
  manager_ = system_->spawn<storage_manager>(std::move(tier), options, events_);
  return caf::none;
}

caf::error node::open_pool() {
  shm_pool::options options;
  options.capacity_bytes = config_.pool_bytes;
  options.mode = config_.shm;
  options.name = config_.shm_name;
  auto pool = shm_pool::open(options);
  if (!pool)
    return std::move(pool.error());
  pool_ = std::move(*pool);
  for (auto& name : pool_->swept())
    log::write(log::level::info, "removed a dead owner's segment", {{"segment", name}});
  if (!pool_->fallback_reason().empty())
    log::write(log::level::warn, "the pool is private memory: engines cannot map it",
               {{"cause", pool_->fallback_reason()}});
  return caf::none;
}

caf::error node::open_lm_door() {
  if (!config_.lm_port)
    return caf::none;
  auto listening = listen_on(config_.host, *config_.lm_port);
  if (!listening)
    return std::move(listening.error());
  lm_port_ = listening->port;
  lm_server_config setup;
  setup.listening = std::move(*listening);
  setup.units = units_;
  setup.manager = manager_;
  setup.pool = pool_->data();
  setup.options.max_object_bytes = config_.max_object_bytes;
  setup.options.max_connections = config_.max_connections;
  setup.options.verify_checksums = config_.checksum;
  auto http_port = config_.http_port.value_or(0);
  setup.options.http_hint = http_port != 0
                              ? "the HTTP port is " + std::to_string(http_port)
                              : "the HTTP port, if any, is in the line of readiness";
  lm_server_ = system_->spawn<lm_server>(std::move(setup));
  return caf::none;
}

caf::error node::open_mp_door() {
  if (!config_.mp_port)
    return caf::none;
  mp_socket::limits limits;
  // What exceeds the pool can never be stored.
  limits.max_frame_bytes = config_.pool_bytes + inline_frame_slack_bytes;
  auto socket = mp_socket::open(config_.host, *config_.mp_port, limits);
  if (!socket)
    return std::move(socket.error());
  mp_port_ = (*socket)->port();
  session_options sessions{
    mp::token_hasher{config_.token_hash, first_hash_, config_.chunk_size}};
  sessions.read_ttl = config_.read_ttl;
  sessions_ = system_->spawn<session_table>(manager_, sessions);
  mp_unit_ = std::make_shared<io_unit>(*system_);
  mp_unit_->run_inline(manager_);
  mp_unit_->run_inline(sessions_);
  mp_unit_->run_inline(events_);
  mp_unit_->start();
  mp_server_config setup;
  setup.socket = std::move(*socket);
  setup.unit = mp_unit_;
  setup.sessions = sessions_;
  auto& options = setup.options;
  options.chunk_size = config_.chunk_size;
  options.pool_name = pool_->name();
  options.pool_bytes = pool_->capacity_bytes();
  options.pool = pool_->data();
  options.boot_number = boot_number(boot_id_);
  options.tick_every = std::clamp<std::chrono::milliseconds>(
    std::min({config_.write_ttl, config_.read_ttl, config_.reap_timeout}) / 4, shortest_tick,
    longest_tick);
  options.max_inline_bytes = config_.pool_bytes / 2;
  options.max_unsealed_bytes = config_.pool_bytes / 8;
  options.verify_checksums = config_.checksum;
  options.lm_port = lm_port_;
  options.events = events_;
  options.engine.manager = manager_;
  options.engine.observer = events_;
  options.engine.shared = !pool_->name().empty();
  options.engine.write_ttl = config_.write_ttl;
  options.engine.reap_after = config_.reap_timeout;
  options.engine.max_handed_out_bytes = config_.pool_bytes / 4 * 3;
  mp_server_ = system_->spawn<mp_server>(std::move(setup));
  mp_door_
    = &static_cast<mp_server*>(caf::actor_cast<caf::abstract_actor*>(mp_server_))->door();
  return caf::none;
}

caf::error node::open_join_door() {
  if (config_.engine_socket.empty())
    return caf::none;
  if (!pool_->is_shared())
    return caf::make_error(errc::invalid_argument,
                           "engine-socket: the pool is private memory, engines cannot map it");
  auto listener = unix_listener::open(config_.engine_socket);
  if (!listener)
    return std::move(listener.error());
  join_options options;
  options.manager = manager_;
  options.pool = pool_.get();
  options.index = index_.get();
  options.board = &board_;
  options.max_object_bytes = config_.max_object_bytes;
  options.write_ttl = config_.write_ttl;
  options.welcome.pool_bytes = pool_->capacity_bytes();
  options.welcome.chunk_tokens = config_.chunk_size;
  options.welcome.hash_algorithm = static_cast<uint8_t>(config_.token_hash);
  options.welcome.none_hash.assign(reinterpret_cast<const char*>(first_hash_.data()),
                                   first_hash_.size());
  join_door_
    = std::make_unique<join_door>(*units_.front(), std::move(*listener), std::move(options));
  return caf::none;
}

/// Last, because its threads ask all other parts.
caf::error node::open_http_door() {
  if (!config_.http_port)
    return caf::none;
  auto server = http_server::open(*this, config_.host, *config_.http_port);
  if (!server)
    return std::move(server.error());
  http_ = std::move(*server);
  http_port_ = http_->port();
  return caf::none;
}

std::string node::endpoints() const {
  auto text = [&](uint16_t port) {
    return port == 0 ? std::string{"off"} : host_text_ + ":" + std::to_string(port);
  };
  return "lm=" + text(lm_port_) + " mp=" + text(mp_port_) + " http=" + text(http_port_)
         + " cluster=off";
}

node_status node::status() const {
  node_status result;
  result.boot_id = boot_id_;
  result.uptime = std::chrono::duration_cast<std::chrono::seconds>(
    std::chrono::steady_clock::now() - started_);
  result.pool_name = pool_->name();
  result.pool_fallback_reason = pool_->fallback_reason();
  result.segment_lost = keeper_->segment_lost();
  result.growing = keeper_->growing();
  caf::scoped_actor self{*system_};
  auto ask = [&](auto& actor, auto request, auto& answer, const char* name) {
    handover_release(caf::actor_cast<caf::abstract_actor*>(actor));
    self->request(actor, status_deadline, request)
      .receive([&](std::decay_t<decltype(answer)>& value) { answer = std::move(value); },
               [&](const caf::error& failure) {
                 result.unhealthy_reason
                   = std::string{name} + " does not answer: " + system_->render(failure);
               });
  };
  ask(manager_, get_storage_status{}, result.storage, "the storage manager");
  if (lm_server_)
    ask(lm_server_, get_front_door_status{}, result.lm, "the lm:// front door");
  if (mp_server_) {
    ask(mp_server_, get_front_door_status{}, result.mp, "the MP front door");
    ask(sessions_, get_session_status{}, result.sessions, "the session table");
    ask(events_, get_event_log_status{}, result.events, "the event log");
    for (auto& [number, actor] : mp_door_->engines())
      ask(actor, get_engine_status{}, result.engines.emplace_back(), "an engine");
  }
  if (join_door_)
    result.join = join_door_->status();
  if (!keeper_->alive())
    result.unhealthy_reason = "the pool's keeper ended";
  result.healthy = result.unhealthy_reason.empty();
  for (auto& unit : units_) {
    auto& counters = unit->counters();
    result.io_requests += counters.requests;
    result.io_inline_resumes += counters.inline_resumes;
    result.io_scheduler_enqueues += counters.scheduler_enqueues;
    result.io_foreign_replies += counters.foreign_replies;
    result.io_eventfd_writes += counters.eventfd_writes;
    result.io_timed_out += counters.timed_out;
  }
  return result;
}

void node::stop(std::chrono::milliseconds grace) {
  if (stopped_ || !system_)
    return;
  stopped_ = true;
  {
    caf::scoped_actor self{*system_};
    auto drain
      = [&](auto& door, bool& drained, std::chrono::milliseconds deadline, bool at_once) {
          if (!drained)
            self->request(door, deadline, drain_front_door{at_once})
              .receive([&](const front_door_drained&) { drained = true; },
                       [](const caf::error&) {});
        };
    auto lm_drained = !lm_server_;
    auto mp_drained = !mp_server_;
    if (grace.count() > 0) {
      drain(mp_server_, mp_drained, grace, false);
      drain(lm_server_, lm_drained, grace, false);
      if (!lm_drained || !mp_drained)
        log::write(log::level::warn, "connections were still busy when the grace period ended");
    }
    // No connection may outlive the unit whose thread it belongs to.
    mp_drained = !mp_server_;
    drain(mp_server_, mp_drained, close_deadline, true);
    drain(lm_server_, lm_drained, close_deadline, true);
    http_.reset();
    join_door_.reset();
    keeper_.reset();
    for (auto& unit : units_)
      unit->stop();
    if (mp_unit_)
      mp_unit_->stop();
    for (auto& part :
         {supervisor_, caf::actor_cast<caf::actor>(lm_server_),
          caf::actor_cast<caf::actor>(mp_server_), caf::actor_cast<caf::actor>(sessions_),
          caf::actor_cast<caf::actor>(events_), caf::actor_cast<caf::actor>(manager_)})
      if (part)
        self->send_exit(part, caf::exit_reason::user_shutdown);
  }
  supervisor_ = nullptr;
  lm_server_ = nullptr;
  mp_door_ = nullptr;
  mp_server_ = nullptr;
  sessions_ = nullptr;
  events_ = nullptr;
  manager_ = nullptr;
  system_->await_all_actors_done();
  // Done is not yet destroyed: a thread of CAF's may still take a front door apart, whose timers
  // are its unit's. That is why the doors share the units.
  units_.clear();
  mp_unit_.reset();
}

} // namespace kvasir
