#include "actors/embedding/engine_core.hpp"

#include "actors/embedding/operation.hpp"
#include "actors/handover.hpp"
#include "backends/eviction_policy.hpp"
#include "backends/pool_tier.hpp"
#include "messages/configure.hpp"

#include <caf/logger.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/uniform_type_info_map.hpp>

#include <cstring>
#include <thread>
#include <typeinfo>

namespace kvasir {

namespace {

/// Whose copying thread this is.
thread_local const engine_core* copies_for = nullptr;

constexpr std::chrono::seconds manager_end_deadline{5};
constexpr std::chrono::seconds join_timeout{5};

/// CAF reads both only when a system is made, and dies of neither: a message of an unknown type is just
/// not understood, an unknown error has no text.
caf::error check_configured(const caf::actor_system& system) {
  auto& config = system.config();
  if (config.type_names_by_rtti.count(typeid(acquire_chunks)) != 0
      && config.error_renderers.count(caf::atom("kvasir")) != 0)
    return caf::none;
  return caf::make_error(errc::invalid_argument,
                         "the lent actor system does not know kvasir's messages: call "
                         "kvasir::configure(config) before the system is made");
}

caf::error check_size(uint64_t chunk_bytes, uint64_t pool_bytes) {
  if (chunk_bytes <= pool_bytes / 4)
    return caf::none;
  return caf::make_error(errc::too_large, "a chunk of " + std::to_string(chunk_bytes)
                                            + " bytes needs a pool of four times that, not "
                                            + std::to_string(pool_bytes) + " bytes");
}

} // namespace

caf::error check(const engine_options& options) {
  auto wrong = [](std::string what) {
    return caf::make_error(errc::invalid_argument, std::move(what));
  };
  if (options.model.empty() || options.model.size() > 1024)
    return wrong("the model's name has " + std::to_string(options.model.size())
                 + " bytes, not 1 to 1024");
  if (options.world_size == 0 || options.world_size > 255)
    return wrong("world_size is " + std::to_string(options.world_size) + ", not 1 to 255");
  if (options.rank >= options.world_size)
    return wrong("rank " + std::to_string(options.rank) + " in a world of "
                 + std::to_string(options.world_size));
  if (options.copy_threads == 0 || options.copy_threads > 64)
    return wrong("copy_threads is " + std::to_string(options.copy_threads) + ", not 1 to 64");
  if (options.max_pending == 0)
    return wrong("max_pending is 0");
  auto layout = mp::make_kv_layout(options.layout);
  if (!layout)
    return std::move(layout.error());
  return options.node.empty() ? check_size(layout->chunk_bytes(), options.pool_bytes)
                              : caf::error{};
}

engine_core::engine_core(const engine_options& options, caf::actor_system* lent)
  : options_(options),
    chunk_bytes_(options.layout.chunk_bytes()),
    stored_as_(mp::stored_layout(options.layout)),
    hasher_(mp::token_hash_algorithm::blake3,
            mp::none_hash(mp::token_hash_algorithm::blake3, {}), options.layout.slots),
    pending_(options.max_pending),
    system_(lent) {
  plain_names_ = names_of({});
}

engine_core::~engine_core() {
  std::call_once(closed_, [this] { shut_down(); });
}

caf::expected<std::shared_ptr<engine_core>> engine_core::open(const engine_options& options,
                                                              caf::actor_system* lent) {
  if (auto why = check(options))
    return why;
  if (lent != nullptr)
    if (auto why = check_configured(*lent))
      return why;
  std::shared_ptr<engine_core> result{new engine_core(options, lent)};
  if (auto why = result->start())
    return why;
  return result;
}

caf::error engine_core::start() {
  if (options_.node.empty())
    if (auto why = open_pool())
      return why;
  if (system_ == nullptr)
    start_system();
  io_unit_ = std::make_unique<io_unit>(*system_);
  unit_ = std::make_unique<caller_unit>(*system_);
  if (auto why = options_.node.empty() ? start_manager() : join())
    return why;
  io_unit_->start();
  watch_ = std::make_unique<deadline_watch>(*this);
  // Calls that wait are bounded, and each submits at most one job at a time.
  workers_ = std::make_unique<worker_pool>(
    worker_pool::options{options_.copy_threads, options_.max_pending});
  if (own_pool_)
    keeper_ = std::make_unique<pool_keeper>(*own_pool_, manager_);
  return caf::none;
}

caf::error engine_core::open_pool() {
  shm_pool::options pool;
  pool.capacity_bytes = options_.pool_bytes;
  pool.mode = options_.shm;
  auto opened = shm_pool::open(pool);
  if (!opened)
    return std::move(opened.error());
  own_pool_ = std::move(*opened);
  // The first step shows whether there is any memory at all: without, do not start.
  auto usable = own_pool_->grow();
  return usable ? caf::error{} : std::move(usable.error());
}

void engine_core::start_system() {
  system_config_ = std::make_unique<caf::actor_system_config>();
  configure(*system_config_);
  // The scheduler only runs what callers hand it: it should sleep, not poll.
  system_config_->set("scheduler.policy", caf::atom("sharing"));
  system_config_->set("scheduler.max-threads", size_t{1});
  system_config_->set("logger.verbosity", caf::atom("quiet"));
  own_system_ = std::make_unique<caf::actor_system>(*system_config_);
  system_ = own_system_.get();
  leave_logger();
}

/// Making a system, and spawning, ties the thread to the system's logger, and a system waits at its
/// end for all such threads but the one that ends it. Somebody else may close this client.
void engine_core::leave_logger() {
  if (own_system_)
    caf::logger::set_current_actor_system(nullptr);
}

caf::error engine_core::start_manager() {
  auto policy = make_eviction_policy(options_.eviction);
  if (!policy)
    return std::move(policy.error());
  // Lazily, or one of CAF's workers would still be busy with its first step when it is asked.
  manager_ = system_->spawn<storage_manager, caf::lazy_init>(
    std::make_unique<pool_tier>(own_pool_->capacity_bytes(), std::move(*policy)),
    make_storage_options(options_.pool_bytes, chunk_bytes_));
  leave_logger();
  unit_->run_inline(manager_);
  // Before the first question, which would find no room otherwise.
  const auto usable = own_pool_->usable_bytes();
  unit_->send(manager_, pool_grown{usable, usable == own_pool_->capacity_bytes()});
  return caf::none;
}

// -- joining ----------------------------------------------------------------------------

caf::error engine_core::join() {
  auto lent = join_node(
    options_.node,
    {.model = options_.model, .world_size = options_.world_size, .rank = options_.rank},
    join_timeout);
  if (!lent)
    return std::move(lent.error());
  if (auto why = accept_welcome(lent->welcome))
    return why;
  if (lent->fds.empty())
    return caf::make_error(errc::io_error, "the node did not lend its pool");
  auto mapped = joined_pool::map(lent->fds.front().fd(), lent->welcome.pool_bytes);
  if (!mapped)
    return std::move(mapped.error());
  caf::actor_config config{nullptr};
  link_ = caf::make_actor<node_link, caf::strong_actor_ptr>(system_->next_actor_id(),
                                                            system_->node(), system_, config,
                                                            *io_unit_, std::move(lent->socket));
  joined_ = std::move(*mapped);
  if (lent->welcome.indexed) {
    if (lent->fds.size() < 3)
      return caf::make_error(errc::io_error, "the node did not lend its index");
    auto index = node_index::map(lent->fds[1].fd(), lent->fds[2].fd(), joined_.size_bytes());
    if (!index)
      return std::move(index.error());
    index_.emplace(std::move(*index));
    plain_names_ = names_of({});
  }
  manager_ = caf::actor_cast<storage_manager_actor>(link_);
  link().open();
  return caf::none;
}

/// Names of chunks follow from the node's settings, or nobody else would find them.
caf::error engine_core::accept_welcome(const join::welcome& welcome) {
  if (welcome.chunk_tokens != options_.layout.slots)
    return caf::make_error(errc::invalid_argument, "the node's chunks have "
                                                     + std::to_string(welcome.chunk_tokens)
                                                     + " tokens, the layout's "
                                                     + std::to_string(options_.layout.slots));
  mp::token_hash none{};
  if (welcome.none_hash.size() != none.size()
      || welcome.hash_algorithm > static_cast<uint8_t>(mp::token_hash_algorithm::sha256_cbor))
    return caf::make_error(errc::invalid_argument, "the node names chunks in an unknown way");
  std::memcpy(none.data(), welcome.none_hash.data(), none.size());
  hasher_ = mp::token_hasher{static_cast<mp::token_hash_algorithm>(welcome.hash_algorithm),
                             none, welcome.chunk_tokens};
  return check_size(chunk_bytes_, welcome.pool_bytes);
}

// -- closing ----------------------------------------------------------------------------

bool engine_core::on_own_thread() const noexcept {
  return copies_for == this || (io_unit_ && io_unit_->on_this_thread());
}

void engine_core::close() {
  if (on_own_thread())
    std::thread{[self = shared_from_this()] {
      self->close();
    }}.detach();
  else
    std::call_once(closed_, [this] { shut_down(); });
}

void engine_core::shut_down() {
  gate_.close();
  // A call that is being run by one of our threads ends when it looks or parks next.
  pending_.abort_all(errc::cancelled);
  if (workers_)
    workers_->stop();
  if (io_unit_) {
    io_unit_->stop();
    // Of calls whose last step was on that thread.
    pending_.abort_all(errc::cancelled);
  }
  keeper_.reset();
  end_manager();
  // The stopped I/O unit stays: a thread of CAF's may still bring it an answer, which it drops.
  own_system_.reset();
  system_config_.reset();
  if (own_pool_)
    own_pool_->withdraw();
}

void engine_core::end_manager() {
  if (link_)
    link().leave();
  if (link_ || !manager_) {
    manager_ = nullptr;
    return;
  }
  caf::scoped_actor self{*system_};
  self->monitor(manager_);
  self->send_exit(manager_, caf::exit_reason::user_shutdown);
  manager_ = nullptr;
  self->receive([](const caf::down_msg&) {}, caf::after(manager_end_deadline) >> [] {});
}

// -- calls ------------------------------------------------------------------------------

void engine_core::end_leases(std::vector<lease_id> leases) {
  if (index_)
    index_->release(leases);
  if (leases.empty())
    return;
  client_gate::entry inside{gate_};
  if (inside)
    unit_->send(manager_, kvasir::end_leases{std::move(leases)});
}

void engine_core::drop_corrupt(object_key key) {
  client_gate::entry inside{gate_};
  if (inside)
    unit_->send(manager_, remove_object{std::move(key)});
}

bool engine_core::submit(std::function<void()> job) {
  return workers_->submit(worker_pool::priority::copy, [this, job = std::move(job)] {
    copies_for = this;
    job();
  });
}

bool engine_core::add_pending(operation& what) {
  switch (pending_.add(what)) {
    case pending_calls::added::refused:
      return false;
    case pending_calls::added::first:
      post([this] {
        if (!watch_->armed())
          io_unit_->arm(*watch_, timer_wheel::resolution);
      });
      return true;
    case pending_calls::added::yes:
      return true;
  }
  return false;
}

void engine_core::deadline_watch::on_timer() {
  if (core_.pending_.expire(pending_calls::clock::now()))
    core_.io_unit_->arm(*this, timer_wheel::resolution);
}

std::shared_ptr<const chunk_names> engine_core::names_of(std::string tenant) const {
  mp::chunk_key_prefix prefix{options_.world_size, options_.layout.digest(), tenant,
                              options_.model};
  return std::make_shared<const chunk_names>(chunk_names{
    owner_, options_.rank, std::move(tenant), std::move(prefix), index_.has_value()});
}

} // namespace kvasir
