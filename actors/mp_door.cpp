#include "actors/mp_door.hpp"

#include "actors/log.hpp"
#include "actors/mp_job.hpp"
#include "messages/mp_reply.hpp"

#include <sys/epoll.h>

#include <span>
#include <utility>

namespace kvasir {

namespace {

/// Requests served before other tasks of the unit get their turn.
constexpr size_t max_requests_per_turn = 64;

/// Of one connection. LMCache's workers have four commits under way, its schedulers one lookup
/// per request.
constexpr size_t max_under_way_per_client = 1'024;

std::span<const std::byte> bytes_of(const zmq::message_t& frame) {
  return {static_cast<const std::byte*>(frame.data()), frame.size()};
}

} // namespace

mp_door::mp_door(io_unit& unit, std::unique_ptr<mp_socket> socket, caf::actor_system& system,
                 session_table_actor sessions, worker_pool& workers, const mp_options& options)
  : unit_(unit),
    socket_(std::move(socket)),
    system_(system),
    sessions_(std::move(sessions)),
    workers_(workers),
    options_(options),
    calls_(unit),
    inline_buffers_(std::make_shared<inline_buffers>(options.max_inline_bytes)),
    unsealed_(options.max_unsealed_bytes) {
  if (!options_.pool_name.empty())
    if (auto watch = segment_watch::open(options_.pool_name))
      segment_watch_ = std::move(*watch);
}

mp_door::~mp_door() = default;

void mp_door::open() {
  watching_ = unit_.watch(socket_->fd(), EPOLLIN | EPOLLET, *this)
              && unit_.watch(socket_->monitor_fd(), EPOLLIN | EPOLLET, *this);
  if (!watching_)
    log::write(log::level::error, "cannot watch the MP port", {});
  unit_.arm(tick_timer_, options_.tick_every);
  unit_.schedule(*this);
}

void mp_door::drain(std::function<void()> on_idle) {
  on_idle_ = std::move(on_idle);
  if (under_way_ == 0)
    on_idle_();
}

void mp_door::close() {
  if (!std::exchange(watching_, false))
    return;
  unit_.unwatch(socket_->fd());
  unit_.unwatch(socket_->monitor_fd());
  socket_ = nullptr;
}

std::vector<std::pair<uint64_t, engine_actor>> mp_door::engines() const {
  std::lock_guard guard{engines_mutex_};
  return {engines_.begin(), engines_.end()};
}

// -- receiving --------------------------------------------------------------------------

void mp_door::run() {
  if (!watching_)
    return;
  watch_connections();
  for (size_t served = 0; served < max_requests_per_turn; ++served) {
    mp_request request;
    switch (socket_->receive(request)) {
      case mp_socket::received::nothing:
        return;
      case mp_socket::received::unusable:
        counters_.add(mp_count::unusable_messages);
        break;
      case mp_socket::received::request:
        handle(std::move(request));
    }
  }
  unit_.schedule(*this);
}

void mp_door::handle(mp_request request) {
  counters_.add(mp_count::requests);
  auto& who = clients_.seen(request.peer.to_string_view(), request.fd, unit_.now());
  open_clients_.store(clients_.count(), std::memory_order_relaxed);
  if (request.operation.size() == 0) {
    control_subscription(request);
    return;
  }
  ++who.under_way;
  auto busy = who.under_way > max_under_way_per_client;
  auto what = mp::parse_operation(bytes_of(request.operation));
  job of{*this, std::move(request), what ? *what : mp::operation::noop, who.id};
  if (!what) {
    counters_.add(mp_count::unserved_operations);
    fail(of);
    return;
  }
  if (busy || on_idle_) {
    counters_.add(mp_count::refused_busy);
    refuse(of);
    return;
  }
  std::vector<std::span<const std::byte>> arguments;
  for (auto& frame : of.request.arguments)
    arguments.push_back(bytes_of(frame));
  auto parsed = mp::parse_request(of.what, arguments);
  if (!parsed) {
    counters_.add(parsed.error() == errc::not_found ? mp_count::unserved_operations
                                                    : mp_count::malformed_requests);
    log::write_limited(log::level::warn, "an MP request was refused",
                       {{"operation", std::string{mp::to_string(of.what)}},
                        {"cause", system_.render(parsed.error())}});
    refuse(of);
    return;
  }
  std::visit([&](auto& request_of_type) { serve(std::move(of), request_of_type); }, *parsed);
}

/// A message without a reader is no reason to ask for it again: LMCache's clients take it for
/// success or failure at once.
void mp_door::refuse(job& of) {
  counters_.add(mp_count::soft_failures);
  switch (of.what) {
    case mp::operation::lookup: // Its status is 0 afterwards.
    case mp::operation::free_lookup_locks:
    case mp::operation::end_session:
    case mp::operation::report_block_allocation:
    case mp::operation::unregister_kv_cache_engine_driven_context:
      answer_void(of);
      return;
    case mp::operation::query_prefetch_status:
    case mp::operation::wait_prefetch_status:
      answer(of, mp::encode_uint(0));
      return;
    case mp::operation::subscribe_kv_events: // It tells of its stores itself then.
      counters_.add(mp_count::streams_refused);
      answer(of, mp::encode_no_events());
      answer_void(of);
      return;
    case mp::operation::prepare_store:
      answer(of, mp::encode_no_buffers());
      return;
    case mp::operation::prepare_retrieve:
      counters_.add(mp_count::retrieves_failed);
      answer(of, mp::encode_retrieve_failed());
      return;
    case mp::operation::commit_store:
      counters_.add(mp_count::stores_failed);
      answer(of, mp::encode_bool(false));
      return;
    case mp::operation::commit_retrieve:
      answer(of, mp::encode_bool(false));
      return;
    default:
      fail(of);
  }
}

// -- answering --------------------------------------------------------------------------

void mp_door::count_sent(const mp_request& to, mp_socket::sent outcome) {
  switch (outcome) {
    case mp_socket::sent::yes:
      counters_.add(mp_count::replies);
      break;
    case mp_socket::sent::peer_gone:
      counters_.add(mp_count::replies_peer_gone);
      clients_.unreachable(to.peer.to_string_view());
      break;
    case mp_socket::sent::peer_slow:
    case mp_socket::sent::failed:
      counters_.add(mp_count::replies_peer_slow);
      break;
  }
  // Sending may have taken the signal that something can be received.
  unit_.schedule(*this);
}

void mp_door::send(const mp_request& to, zmq::message_t* result) {
  if (socket_)
    count_sent(to, socket_->send(to, result));
}

void mp_door::answer(job& of, std::string_view result) {
  answer(of, zmq::message_t{result.data(), result.size()});
}

void mp_door::answer(job& of, zmq::message_t result) {
  send(of.request, &result);
}

void mp_door::answer_void(job& of) {
  send(of.request, nullptr);
}

/// Compat: another text in the place of the operation is what the client turns into an error at
/// once; any other reply that it does not expect it loses, and waits.
void mp_door::fail(job& of) {
  counters_.add(mp_count::errors_sent);
  auto text = mp::encode_text("error");
  if (socket_)
    count_sent(of.request,
               socket_->send_as(of.request, zmq::message_t{text.data(), text.size()}, nullptr));
}

// -- connections and time ---------------------------------------------------------------

void mp_door::watch_connections() {
  mp_connection_event event{};
  auto fd = -1;
  while (socket_->next_event(event, fd)) {
    if (event == mp_connection_event::closed) {
      clients_.closed(fd);
      continue;
    }
    auto failed = event == mp_connection_event::not_zmtp;
    counters_.add(failed ? mp_count::handshakes_failed : mp_count::closed_unused);
    log::write_limited(log::level::warn,
                       failed ? "not a ZMTP client came to the MP port"
                              : "a connection to the MP port ended without a request: perhaps "
                                "not a ZMTP client",
                       {{"lm_port", std::to_string(options_.lm_port)}});
  }
}

void mp_door::on_tick() {
  unit_.arm(tick_timer_, options_.tick_every);
  if (!watching_)
    return;
  inline_buffers_->trim();
  unit_.send(sessions_, tick{});
  for (auto id : clients_.take_gone(unit_.now(), options_.engine.reap_after)) {
    counters_.add(mp_count::clients_gone);
    unit_.send(sessions_, client_gone{id});
    end_subscriptions_of(id);
  }
  open_clients_.store(clients_.count(), std::memory_order_relaxed);
  std::vector<uint64_t> numbers;
  for (auto& entry : instances_)
    numbers.push_back(entry.first);
  for (auto number : numbers)
    look_after(number);
}

} // namespace kvasir
