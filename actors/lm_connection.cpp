#include "actors/lm_connection.hpp"

#include "actors/log.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t buffer_bytes = 16 * 1024;

/// What is read at once where a PUT's header is expected.
constexpr size_t put_header_read_bytes = 1024;

/// How often a transfer that waits for its client is looked at.
constexpr std::chrono::milliseconds look_every{500};

/// What a transfer moves between two looks at least if it is to keep memory others wait for.
constexpr uint64_t least_bytes_per_look = 64 * 1024;

} // namespace

lm_connection::lm_connection(lm_shard& shard, socket_handle socket)
  : shard_(shard),
    socket_(std::move(socket)),
    writer_(next_owner_id()),
    reader_(next_owner_id()),
    buffer_(new std::byte[buffer_bytes]),
    reserved_(shard.unit, *this),
    acquired_(shard.unit, *this),
    exist_(shard.unit, *this),
    list_(shard.unit, *this),
    pressure_(shard.unit, *this) {}

lm_connection::~lm_connection() = default;

void lm_connection::open() {
  set_connection_options(socket_.fd());
  acknowledge_now(socket_.fd());
  doomed_ = !shard_.unit.watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, *this);
  shard_.unit.schedule(*this);
}

void lm_connection::on_events(uint32_t events) {
  dry_ = false;
  hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
}

void lm_connection::close() {
  if (std::exchange(closed_, true))
    return;
  if (state_ == state::receiving || state_ == state::reserving || state_ == state::first_byte)
    shard_.counters.add(lm_count::torn_puts);
  // Nothing of ours is touched after this: no byte goes into or out of a slot any more.
  if (wrote_)
    shard_.unit.send(shard_.manager, end_owner{writer_});
  if (read_)
    shard_.unit.send(shard_.manager, end_owner{reader_});
  shard_.unit.unwatch(socket_.fd());
  socket_ = socket_handle{};
  shard_.remove(*this);
}

void lm_connection::run() {
  try {
    turn_end_ = moved_bytes_ + turn_bytes;
    for (;;) {
      switch (doomed_ ? progress::ended : step()) {
        case progress::more:
          continue;
        case progress::blocked:
          watch_for_stall();
          return;
        case progress::yield:
          shard_.unit.schedule(*this);
          return;
        case progress::ended:
          close();
          return;
      }
    }
  } catch (const std::exception& failure) {
    log::write_limited(log::level::error, "a connection was closed by an exception",
                       {{"peer", peer()}, {"cause", failure.what()}});
    close();
  }
}

lm_connection::progress lm_connection::step() {
  if (pressure_asked_ && !pressure_.pending()) {
    pressure_asked_ = false;
    if (pressure_ && pressure_.value.requests_wait)
      if (auto outcome = yield_to_others(); outcome != progress::more)
        return outcome;
  }
  switch (state_) {
    case state::header:
      return on_header();
    case state::first_byte:
      return on_first_byte();
    case state::reserving:
      return on_reserved();
    case state::receiving:
      return receive_body();
    case state::draining:
      return drain_body();
    case state::acquiring:
      return on_acquired();
    case state::verifying:
      return verify_value();
    case state::checking:
      return on_checked();
    case state::listing:
      return on_listed();
  }
  return progress::ended;
}

// -- the socket -------------------------------------------------------------------------

lm_connection::progress lm_connection::read_some(std::byte* target, size_t size, size_t& got) {
  while (!dry_) {
    auto count = recv(socket_.fd(), target, size, MSG_DONTWAIT);
    if (count > 0) {
      got = static_cast<size_t>(count);
      moved_bytes_ += got;
      // Saves the call that would only say so. An end has no event of its own to tell of it.
      dry_ = got < size && !hung_up_;
      return progress::more;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR))
      return progress::ended;
    dry_ = errno == EAGAIN;
  }
  // In the middle of a request, or after a PUT: no answer of ours carries the acknowledgement
  // that the client's Nagle algorithm waits for.
  if (state_ != state::header || buffered() > 0 || put_unanswered_)
    acknowledge_now(socket_.fd());
  return progress::blocked;
}

lm_connection::progress lm_connection::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ = buffered();
    begin_ = 0;
  }
  // After a PUT another one is likely: its value should go into the slot, not in here first.
  auto room = buffer_bytes - end_;
  if (state_ == state::header && last_was_put_)
    room = std::min(room, put_header_read_bytes);
  size_t got = 0;
  auto outcome = read_some(buffer_.get() + end_, room, got);
  end_ += got;
  return outcome;
}

lm_connection::progress lm_connection::flush() {
  auto result = outbox_.flush(socket_.fd(), moved_bytes_);
  while (auto lease = outbox_.take_sent())
    shard_.unit.send(shard_.manager, release_read{*lease, false});
  switch (result) {
    case lm_outbox::result::done:
      return progress::more;
    case lm_outbox::result::blocked:
      return progress::blocked;
    case lm_outbox::result::failed:
      break;
  }
  return progress::ended;
}

lm_connection::progress lm_connection::wait(progress outcome) {
  return flush() == progress::ended ? progress::ended : outcome;
}

// -- requests ---------------------------------------------------------------------------

lm::client_header_result lm_connection::parse_next() const {
  return lm::parse_client_header(std::span<const std::byte, lm::client_header_size>{
    buffer_.get() + begin_, lm::client_header_size});
}

lm_connection::progress lm_connection::on_header() {
  if (!knows_protocol_ && buffered() >= sizeof(int32_t)) {
    auto seen = lm::detect_protocol({buffer_.get() + begin_, buffered()});
    if (seen != lm::protocol::lm)
      return refuse_foreigner(seen);
    knows_protocol_ = true;
  }
  if (buffered() < lm::client_header_size || outbox_.full()) {
    // Answer what was asked so far before waiting for more.
    if (auto flushed = flush(); flushed != progress::more)
      return flushed;
    if (buffered() < lm::client_header_size) {
      if (shard_.draining() && buffered() == 0)
        return progress::ended;
      return moved_bytes_ >= turn_end_ ? progress::yield : fill();
    }
  }
  auto request = parse_next();
  if (request.framing_lost())
    return lose_framing(request);
  auto op = request.header.op;
  last_was_put_ = op == lm::command::put
                  || (put_unanswered_ && op == lm::command::exist
                      && buffered() == lm::client_header_size);
  put_unanswered_ = op == lm::command::put;
  switch (request.header.op) {
    case lm::command::put:
      return begin_put(request);
    case lm::command::get:
      return begin_get(request);
    case lm::command::exist:
    case lm::command::health:
      return begin_check();
    case lm::command::list:
      begin_ += lm::client_header_size;
      shard_.counters.add(lm_count::lists);
      list_text_.clear();
      list_count_ = 0;
      shard_.unit.request(shard_.manager, list_objects{0}, list_, shard_.options.room_deadline);
      state_ = state::listing;
      return progress::more;
  }
  return progress::ended;
}

lm_connection::progress lm_connection::refuse_foreigner(lm::protocol seen) {
  shard_.counters.add(lm_count::wrong_protocol);
  auto name = std::string{lm::to_string(seen)};
  log::write_limited(log::level::warn, "not an lm:// client on the lm:// port",
                     {{"peer", peer()},
                      {"protocol", name},
                      {"hint", seen == lm::protocol::http ? shard_.options.http_hint
                                                          : "this port speaks lm:// only"}});
  return progress::ended;
}

lm_connection::progress lm_connection::lose_framing(const lm::client_header_result& request) {
  shard_.counters.add(lm_count::protocol_errors);
  log::write_limited(log::level::warn, "closing an lm:// connection that lost its framing",
                     {{"peer", peer()}, {"fault", std::string{lm::to_string(request.fault)}}});
  flush(); // Earlier requests still get their answers, as far as the socket takes them.
  return progress::ended;
}

// -- stalls -----------------------------------------------------------------------------

bool lm_connection::in_transfer() const noexcept {
  switch (state_) {
    case state::first_byte:
    case state::receiving:
    case state::draining:
      return true;
    case state::header:
      return buffered() > 0 || !outbox_.empty();
    case state::reserving:
    case state::acquiring:
    case state::verifying:
    case state::checking:
    case state::listing:
      break;
  }
  return !outbox_.empty();
}

void lm_connection::watch_for_stall() {
  if (stall_timer_.armed() || !in_transfer())
    return;
  moved_at_last_look_ = moved_bytes_;
  stalled_for_ = slow_for_ = std::chrono::milliseconds{0};
  shard_.unit.arm(stall_timer_, look_every);
}

void lm_connection::on_stall_timer() {
  if (closed_ || !in_transfer())
    return;
  shard_.unit.arm(stall_timer_, look_every);
  auto moved = moved_bytes_ - std::exchange(moved_at_last_look_, moved_bytes_);
  stalled_for_ = moved > 0 ? std::chrono::milliseconds{0} : stalled_for_ + look_every;
  slow_for_
    = moved >= least_bytes_per_look ? std::chrono::milliseconds{0} : slow_for_ + look_every;
  if (slow_for_.count() == 0)
    return;
  doomed_ = doomed_ || stalled_for_ >= shard_.options.stall_limit;
  if (doomed_) {
    shard_.counters.add(lm_count::stalled_transfers);
  } else if (!pressure_.pending()) {
    pressure_asked_ = true;
    shard_.unit.request(shard_.manager, check_pressure{}, pressure_,
                        shard_.options.room_deadline);
  }
  shard_.unit.schedule(*this);
}

/// Others wait for memory, and this transfer hardly moved since a while.
lm_connection::progress lm_connection::yield_to_others() {
  if (!outbox_.empty() && slow_for_ >= shard_.options.get_stall_limit_under_pressure) {
    shard_.counters.add(lm_count::stalled_transfers);
    return progress::ended;
  }
  // Not while bytes may lie unread in the socket: it may be this process that slept.
  if (state_ == state::receiving && dry_
      && slow_for_ >= shard_.options.put_stall_limit_under_pressure) {
    shard_.unit.send(shard_.manager, abort_write{reserved_.value.id});
    drop_value(lm_count::dropped_stalled);
  }
  return progress::more;
}

std::string lm_connection::peer() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(socket_.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return "unknown";
  std::array<char, INET6_ADDRSTRLEN> text{};
  auto v6 = reinterpret_cast<sockaddr_in6*>(&address);
  auto v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto is_v6 = address.ss_family == AF_INET6;
  inet_ntop(address.ss_family, is_v6 ? static_cast<void*>(&v6->sin6_addr) : &v4->sin_addr,
            text.data(), text.size());
  return std::string{text.data()} + ":"
         + std::to_string(ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}

} // namespace kvasir
