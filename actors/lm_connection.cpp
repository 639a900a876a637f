#include "actors/lm_connection.hpp"

#include "actors/log.hpp"
#include "messages/lm_shape.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t buffer_bytes = 16 * 1024;

/// What one connection moves before others get their turn.
constexpr uint64_t turn_bytes = 2 << 20;

/// Read in pieces that are still in the core's cache when they are hashed: 64 KiB cost half as
/// much as 256 KiB.
constexpr size_t hashed_piece_bytes = 64 * 1024;
constexpr size_t piece_bytes = 1 << 20;

/// What is read at once where a PUT's header is expected.
constexpr size_t put_header_read_bytes = 1024;

/// How often a transfer that waits for its client is looked at.
constexpr std::chrono::milliseconds look_every{500};

/// EXISTs that become one message.
constexpr size_t max_checks = buffer_bytes / lm::client_header_size + 1;

} // namespace

lm_connection::lm_connection(lm_shard& shard, socket_handle socket)
  : shard_(shard),
    socket_(std::move(socket)),
    owner_(next_owner_id()),
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
  shard_.unit.watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, *this);
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
  if (owns_leases_)
    shard_.unit.send(shard_.manager, end_owner{owner_});
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

// -- the socket ---------------------------------------------------------------------------------

lm_connection::progress lm_connection::read_some(std::byte* target, size_t size,
                                                 size_t& got) {
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
  if (state_ != state::header || buffered() > 0)
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

// -- requests -----------------------------------------------------------------------------------

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
  last_was_put_ = request.header.op == lm::command::put
                  || (last_was_put_ && request.header.op == lm::command::exist
                      && buffered() == lm::client_header_size);
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
                      {"hint", seen == lm::protocol::http ? shard_.options.http_hint : ""}});
  return progress::ended;
}

lm_connection::progress lm_connection::lose_framing(const lm::client_header_result& request) {
  shard_.counters.add(lm_count::protocol_errors);
  log::write_limited(log::level::warn, "closing an lm:// connection that lost its framing",
                     {{"peer", peer()}, {"fault", std::string{lm::to_string(request.fault)}}});
  flush(); // Earlier requests still get their answers, as far as the socket takes them.
  return progress::ended;
}

// -- PUT ----------------------------------------------------------------------------------------

lm_connection::progress lm_connection::begin_put(const lm::client_header_result& request) {
  begin_ += lm::client_header_size;
  shard_.counters.add(lm_count::puts);
  size_bytes_ = request.body_size();
  done_bytes_ = 0;
  if (!request.good()) {
    drop_value(lm_count::protocol_errors);
    return progress::more;
  }
  if (size_bytes_ > shard_.options.max_object_bytes) {
    drop_value(lm_count::dropped_too_large);
    return progress::more;
  }
  if (lm::contradicts(request.header.layout, size_bytes_)) {
    drop_value(lm_count::dropped_layout_mismatch);
    log::write_limited(log::level::warn, "a PUT is longer than its shape and dtype: not stored",
                       {{"key", request.header.key}, {"bytes", std::to_string(size_bytes_)}});
    return progress::more;
  }
  if (request.kind == lm::key_kind::raw)
    shard_.counters.add(lm_count::raw_keys);
  key_.bytes = request.header.key;
  layout_ = request.header.layout;
  state_ = state::first_byte;
  return progress::more;
}

void lm_connection::drop_value(lm_count why) {
  shard_.counters.add(why);
  state_ = state::draining;
}

lm_connection::progress lm_connection::on_first_byte() {
  if (buffered() == 0 && size_bytes_ > 0) {
    if (auto flushed = flush(); flushed != progress::more)
      return flushed;
    return fill();
  }
  hash_.reset();
  owns_leases_ = true;
  shard_.unit.request(shard_.manager,
                      reserve_write{owner_, std::move(key_), layout_, size_bytes_}, reserved_,
                      shard_.options.room_deadline);
  state_ = state::reserving;
  return progress::more;
}

/// The manager may still grant what this connection no longer waits for: end the owner, so
/// that such a grant is void, and go on under a new name.
void lm_connection::give_up_waiting() {
  shard_.unit.send(shard_.manager, end_owner{std::exchange(owner_, next_owner_id())});
  owns_leases_ = false;
}

lm_connection::progress lm_connection::on_reserved() {
  if (reserved_.pending())
    return progress::blocked;
  if (!reserved_) {
    if (reserved_.error() == errc::peer_unreachable)
      return progress::ended;
    if (reserved_.error() == errc::timed_out)
      give_up_waiting();
    drop_value(reserved_.error() == errc::too_large ? lm_count::dropped_too_large
                                                    : lm_count::dropped_no_room);
    return progress::more;
  }
  state_ = state::receiving;
  return progress::more;
}

lm_connection::progress lm_connection::receive_body() {
  auto target = shard_.pool + reserved_.value.where.offset_bytes;
  auto verify = shard_.options.verify_checksums;
  if (buffered() > 0 && done_bytes_ < size_bytes_) {
    auto count = std::min<uint64_t>(buffered(), size_bytes_ - done_bytes_);
    std::memcpy(target + done_bytes_, buffer_.get() + begin_, count);
    if (verify)
      hash_.update({target + done_bytes_, count});
    begin_ += count;
    done_bytes_ += count;
  }
  while (done_bytes_ < size_bytes_) {
    if (moved_bytes_ >= turn_end_)
      return progress::yield;
    auto want = std::min<uint64_t>(verify ? hashed_piece_bytes : piece_bytes,
                                   size_bytes_ - done_bytes_);
    size_t got = 0;
    if (auto outcome = read_some(target + done_bytes_, want, got); outcome != progress::more)
      return outcome;
    if (verify)
      hash_.update({target + done_bytes_, got});
    done_bytes_ += got;
  }
  return finish_put();
}

lm_connection::progress lm_connection::finish_put() {
  // Not awaited: whatever this client asks next comes after it in the manager's mailbox.
  auto checksum = shard_.options.verify_checksums ? hash_.digest() : 0;
  shard_.unit.send(shard_.manager, finish_write{reserved_.value.id, checksum});
  shard_.counters.add(lm_count::put_bytes, size_bytes_);
  state_ = state::header;
  return progress::more;
}

lm_connection::progress lm_connection::drain_body() {
  for (;;) {
    auto count = std::min<uint64_t>(buffered(), size_bytes_ - done_bytes_);
    begin_ += count;
    done_bytes_ += count;
    if (done_bytes_ == size_bytes_) {
      state_ = state::header;
      return progress::more;
    }
    if (moved_bytes_ >= turn_end_)
      return progress::yield;
    if (auto filled = fill(); filled != progress::more)
      return filled;
  }
}

// -- GET ----------------------------------------------------------------------------------------

lm_connection::progress lm_connection::begin_get(const lm::client_header_result& request) {
  begin_ += lm::client_header_size;
  shard_.counters.add(lm_count::gets);
  if (!request.good()) {
    shard_.counters.add(lm_count::protocol_errors);
    outbox_.add(lm::plain_reply(lm::return_code::fail));
    return progress::more;
  }
  if (request.kind == lm::key_kind::raw)
    shard_.counters.add(lm_count::raw_keys);
  owns_leases_ = true;
  shard_.unit.request(shard_.manager, acquire_read{owner_, object_key{request.header.key}},
                      acquired_, shard_.options.room_deadline);
  state_ = state::acquiring;
  return progress::more;
}

lm_connection::progress lm_connection::on_acquired() {
  if (acquired_.pending())
    return progress::blocked;
  if (!acquired_) {
    if (acquired_.error() == errc::peer_unreachable)
      return progress::ended;
    if (acquired_.error() == errc::timed_out) {
      // The outbox may hold values under the same owner: they must be out first.
      if (auto flushed = flush(); flushed != progress::more)
        return flushed;
      give_up_waiting();
    }
    outbox_.add(lm::plain_reply(lm::return_code::fail));
    state_ = state::header;
    return progress::more;
  }
  size_bytes_ = acquired_.value.where.size_bytes;
  done_bytes_ = 0;
  if (!shard_.options.verify_checksums) {
    send_value();
    return progress::more;
  }
  hash_.reset();
  state_ = state::verifying;
  return progress::more;
}

lm_connection::progress lm_connection::verify_value() {
  auto value = shard_.pool + acquired_.value.where.offset_bytes;
  while (done_bytes_ < size_bytes_) {
    if (moved_bytes_ >= turn_end_)
      return progress::yield;
    auto count = std::min<uint64_t>(turn_bytes, size_bytes_ - done_bytes_);
    hash_.update({value + done_bytes_, count});
    done_bytes_ += count;
    moved_bytes_ += count;
  }
  if (hash_.digest() == acquired_.value.checksum) {
    send_value();
    return progress::more;
  }
  shard_.counters.add(lm_count::checksum_mismatches);
  log::write(log::level::error, "a value changed in memory: dropped, answered as a miss",
             {{"bytes", std::to_string(size_bytes_)}});
  shard_.unit.send(shard_.manager, release_read{acquired_.value.id, true});
  outbox_.add(lm::plain_reply(lm::return_code::fail));
  state_ = state::header;
  return progress::more;
}

void lm_connection::send_value() {
  auto& found = acquired_.value;
  lm::server_header reply;
  reply.code = lm::return_code::success;
  reply.length = static_cast<int32_t>(size_bytes_);
  reply.layout = found.layout;
  state_ = state::header;
  auto header = lm::encode_server_header(reply);
  if (!header) { // Cannot be: only what a PUT declared correctly is stored.
    shard_.unit.send(shard_.manager, release_read{found.id, true});
    outbox_.add(lm::plain_reply(lm::return_code::fail));
    return;
  }
  outbox_.add(*header);
  shard_.counters.add(lm_count::get_hits);
  shard_.counters.add(lm_count::get_bytes, size_bytes_);
  if (size_bytes_ == 0)
    shard_.unit.send(shard_.manager, release_read{found.id, false});
  else
    outbox_.add_value({shard_.pool + found.where.offset_bytes, size_bytes_}, found.id);
}

// -- EXIST, HEALTH ------------------------------------------------------------------------------

lm_connection::progress lm_connection::begin_check() {
  checks_.clear();
  check_exist question;
  question.keys.reserve(std::min(max_checks, buffered() / lm::client_header_size));
  while (buffered() >= lm::client_header_size) {
    auto request = parse_next();
    if (request.framing_lost() || (request.header.op != lm::command::exist
                                   && request.header.op != lm::command::health))
      break;
    begin_ += lm::client_header_size;
    auto exist = request.header.op == lm::command::exist;
    shard_.counters.add(exist ? lm_count::exists : lm_count::healths);
    if (!request.good()) {
      shard_.counters.add(lm_count::protocol_errors);
      checks_.push_back(check::bad);
    } else if (exist) {
      if (request.kind == lm::key_kind::raw)
        shard_.counters.add(lm_count::raw_keys);
      checks_.push_back(check::exist);
      question.keys.push_back(object_key{std::move(request.header.key)});
    } else {
      checks_.push_back(check::health);
    }
  }
  // Also without any key: that the manager answers is what HEALTH asks.
  shard_.unit.request(shard_.manager, std::move(question), exist_,
                      shard_.options.room_deadline);
  state_ = state::checking;
  return progress::more;
}

lm_connection::progress lm_connection::on_checked() {
  if (exist_.pending())
    return progress::blocked;
  if (!exist_)
    return progress::ended; // The manager is gone, or hangs: nothing here can be trusted.
  auto found = exist_.value.found.begin();
  for (auto asked : checks_) {
    auto yes = asked == check::health || (asked == check::exist && *found++ != 0);
    outbox_.add(lm::plain_reply(yes ? lm::return_code::success : lm::return_code::fail));
  }
  state_ = state::header;
  return progress::more;
}

// -- LIST ---------------------------------------------------------------------------------------

/// Compat: LMCache's server never answers a LIST. This is the form that its own commented-out
/// code had: the number of keys in the shape, the keys separated by newlines as the value.
lm_connection::progress lm_connection::on_listed() {
  if (list_.pending())
    return progress::blocked;
  if (!list_)
    return progress::ended;
  auto full = false;
  for (auto& object : list_.value.objects) {
    auto& key = object.key.bytes;
    full = list_text_.size() + key.size() + 1 > shard_.options.max_list_bytes;
    if (full)
      break;
    if (list_count_++ > 0)
      list_text_ += '\n';
    list_text_ += key;
  }
  if (!full && list_.value.next_cursor != 0) {
    shard_.unit.request(shard_.manager, list_objects{list_.value.next_cursor}, list_,
                        shard_.options.room_deadline);
    return progress::yield; // A long list lets others run between its slices.
  }
  if (full)
    shard_.counters.add(lm_count::lists_truncated);
  lm::server_header reply;
  reply.code = lm::return_code::success;
  reply.length = static_cast<int32_t>(list_text_.size());
  reply.layout = {static_cast<int32_t>(lm::memory_format::binary_buffer), 0,
                  {list_count_, 0, 0, 0}};
  if (auto header = lm::encode_server_header(reply)) {
    outbox_.add(*header);
    outbox_.add(std::as_bytes(std::span{list_text_}));
  }
  list_text_ = std::string{};
  state_ = state::header;
  return progress::more;
}

// -- stalls -------------------------------------------------------------------------------------

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
  stalled_for_ = std::chrono::milliseconds{0};
  shard_.unit.arm(stall_timer_, look_every);
}

void lm_connection::on_stall_timer() {
  if (closed_ || !in_transfer())
    return;
  shard_.unit.arm(stall_timer_, look_every);
  if (moved_bytes_ != std::exchange(moved_at_last_look_, moved_bytes_)) {
    stalled_for_ = std::chrono::milliseconds{0};
    return;
  }
  stalled_for_ += look_every;
  doomed_ = stalled_for_ >= shard_.options.stall_limit;
  if (doomed_) {
    shard_.counters.add(lm_count::stalled_transfers);
  } else if (!pressure_.pending()) {
    pressure_asked_ = true;
    shard_.unit.request(shard_.manager, check_pressure{}, pressure_,
                        shard_.options.room_deadline);
  }
  shard_.unit.schedule(*this);
}

/// Others wait for memory, and this transfer made no progress since a while.
lm_connection::progress lm_connection::yield_to_others() {
  if (!outbox_.empty() && stalled_for_ >= shard_.options.get_stall_limit_under_pressure) {
    shard_.counters.add(lm_count::stalled_transfers);
    return progress::ended;
  }
  if (state_ == state::receiving
      && stalled_for_ >= shard_.options.put_stall_limit_under_pressure) {
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
