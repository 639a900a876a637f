#include "actors/join_connection.hpp"

#include "actors/log.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t read_bytes = 64 * 1024;
constexpr size_t max_unsent_bytes = 1 << 20; ///< Beyond it nothing more is asked.
constexpr size_t max_key_bytes = 2048;
constexpr size_t max_tenant_bytes = 128;
constexpr size_t max_logged_bytes = 200;
constexpr std::chrono::seconds answer_deadline{10};
constexpr std::chrono::milliseconds shortest_expiry_look{50};

caf::error wrong(const char* what) {
  return caf::make_error(errc::invalid_argument, std::string{what});
}

/// Names of chunks start with a NUL byte; lm:// objects may change under their readers.
bool is_chunk(const object_key& key) {
  return !key.bytes.empty() && key.bytes.front() == '\0' && key.bytes.size() <= max_key_bytes;
}

template <class Keys>
bool are_chunks(const Keys& keys) {
  return std::all_of(keys.begin(), keys.end(), is_chunk);
}

} // namespace

join_connection::join_connection(join_door& door, socket_handle socket)
  : door_(door),
    socket_(std::move(socket)),
    owner_(next_owner_id()),
    reserved_(door.unit_, *this),
    finished_(door.unit_, *this),
    acquired_(door.unit_, *this),
    done_(door.unit_, *this),
    status_(door.unit_, *this) {}

void join_connection::open() {
  hung_up_ = !door_.unit_.watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, *this);
  door_.unit_.arm(hello_timer_, door_.options_.hello_deadline);
  door_.unit_.schedule(*this);
}

void join_connection::on_events(uint32_t events) {
  dry_ = false;
  hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
}

void join_connection::close() {
  if (std::exchange(closed_, true))
    return;
  if (state_ != state::greeting)
    door_.counters_.add(join_count::left);
  if (page_ != 0) {
    door_.options_.board->remove(page_);
    door_.unit_.send(door_.options_.manager, revisit_holds{});
  }
  door_.unit_.send(door_.options_.manager, end_owner{owner_});
  door_.unit_.unwatch(socket_.fd());
  socket_ = socket_handle{};
  door_.remove(*this);
}

void join_connection::run() {
  if (closed_)
    return;
  for (;;) {
    switch (step()) {
      case progress::more:
        continue;
      case progress::blocked:
        return;
      case progress::yield:
        door_.unit_.schedule(*this);
        return;
      case progress::ended:
        close();
        return;
    }
  }
}

/// Once the other side hung up nobody reads answers: only then everything ends, and at once.
join_connection::progress join_connection::step() {
  if (hung_up_)
    return progress::ended;
  if (asked_.id != 0) {
    if (pending())
      return progress::blocked;
    answer();
  }
  join::frame_header header;
  if (state_ != state::unserved && out_.size() - out_begin_ < max_unsent_bytes
      && next_frame(header)) {
    if (!handle(header)) {
      stop_serving("a malformed frame");
      return progress::more;
    }
    return asked_.id != 0 && pending() ? progress::blocked : progress::more;
  }
  if (auto flushed = flush(); flushed != progress::more)
    return flushed;
  return fill();
}

// -- the socket -------------------------------------------------------------------------

/// @returns whether a whole frame, or one that is too long, is here.
bool join_connection::next_frame(join::frame_header& header) const {
  const auto there = in_.size() - in_begin_;
  if (there < sizeof(header))
    return false;
  std::memcpy(&header, in_.data() + in_begin_, sizeof(header));
  return header.payload_bytes > join::max_payload_bytes
         || there - sizeof(header) >= header.payload_bytes;
}

join_connection::progress join_connection::fill() {
  if (in_begin_ > 0) {
    in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(in_begin_));
    in_begin_ = 0;
  }
  if (dry_)
    return progress::blocked;
  const auto had = in_.size();
  in_.resize(had + read_bytes);
  auto got = recv(socket_.fd(), in_.data() + had, read_bytes, MSG_DONTWAIT);
  in_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0)
    return progress::ended;
  if (got < 0) {
    dry_ = errno == EAGAIN;
    return dry_ || errno == EINTR ? progress::more : progress::ended;
  }
  if (state_ == state::unserved)
    in_.clear();
  return progress::more;
}

join_connection::progress join_connection::flush() {
  while (out_begin_ < out_.size()) {
    auto sent = send_with_fds(socket_.fd(), std::span{out_}.subspan(out_begin_), lent_);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return errno == EAGAIN ? progress::blocked : progress::ended;
    lent_.clear();
    pool_ = socket_handle{};
    out_begin_ += static_cast<size_t>(sent);
  }
  out_.clear();
  out_begin_ = 0;
  return progress::more;
}

/// Before anything was lent, a connection can just be closed.
void join_connection::refuse(const std::string& cause) {
  door_.counters_.add(join_count::refused);
  log::write_limited(log::level::warn, "an engine was not let in", {{"cause", cause}});
}

/// The engine may still write into what it was lent: the connection stays until it is gone. It is
/// told by the end of our side.
void join_connection::stop_serving(const std::string& cause) {
  if (state_ == state::greeting) {
    refuse(cause);
    hung_up_ = true;
    return;
  }
  state_ = state::unserved;
  in_.clear();
  in_begin_ = 0;
  out_.clear(); // Or sending it would fail, as if the engine were gone.
  out_begin_ = 0;
  door_.counters_.add(join_count::protocol_errors);
  log::write_limited(log::level::warn, "a joined engine is not served any more",
                     {{"cause", cause}});
  shutdown(socket_.fd(), SHUT_WR);
}

// -- requests ---------------------------------------------------------------------------

/// @returns false if it is malformed.
bool join_connection::handle(const join::frame_header& header) {
  if (header.payload_bytes > join::max_payload_bytes)
    return false;
  auto payload = in_.data() + in_begin_ + sizeof(header);
  in_begin_ += sizeof(header) + header.payload_bytes;
  if (state_ == state::greeting)
    return greet(header, payload);
  door_.counters_.add(join_count::requests);
  return begin(header, payload);
}

/// @returns false if it cannot be one.
bool join_connection::greet(const join::frame_header& header, const char* payload) {
  join::hello hello;
  if (header.what != join::op::hello || header.payload_bytes > read_bytes
      || !join::read_payload(header, payload, hello) || hello.magic != join::magic)
    return false;
  if (hello.version != join::version) {
    refuse("it speaks version " + std::to_string(hello.version));
    join::append_error(out_, header.what, header.id,
                       caf::make_error(errc::invalid_argument, "the node speaks version "
                                                                 + std::to_string(join::version)
                                                                 + " of joining"));
    return true;
  }
  if (auto why = lend()) {
    refuse("it can't be lent the pool");
    join::append_error(out_, header.what, header.id, why);
    return true;
  }
  state_ = state::serving;
  door_.counters_.add(join_count::joined);
  log::write(
    log::level::info, "an engine joined",
    {{"model", hello.model.substr(0, max_logged_bytes)}, {"rank", std::to_string(hello.rank)}});
  auto welcome = door_.options_.welcome;
  welcome.indexed = page_ != 0;
  join::append_frame(out_, header.what, header.id, welcome);
  return true;
}

caf::error join_connection::lend() {
  auto& options = door_.options_;
  pool_ = socket_handle{options.pool->reopen()};
  if (!pool_)
    return caf::make_error(errc::io_error,
                           "the pool's segment: " + std::generic_category().message(errno));
  lent_.push_back(pool_.fd());
  if (options.index == nullptr)
    return caf::none;
  auto page = options.board->add();
  if (!page)
    return std::move(page.error());
  page_ = *page;
  lent_.push_back(options.index->read_only_fd());
  lent_.push_back(options.board->fd(page_));
  return caf::none;
}

bool join_connection::begin(const join::frame_header& header, const char* payload) {
  if (header.id == 0)
    return false;
  switch (header.what) {
    case join::op::hello:
      return false;
    case join::op::reserve_chunks:
      return ask<reserve_chunks>(header, payload, reserved_);
    case join::op::finish_chunks:
      return ask<finish_chunks>(header, payload, finished_);
    case join::op::acquire_chunks:
      return ask<acquire_chunks>(header, payload, acquired_);
    case join::op::end_leases:
      return ask<end_leases>(header, payload, done_);
    case join::op::remove_object:
      return ask<remove_object>(header, payload, done_);
    case join::op::get_storage_status:
      return ask<get_storage_status>(header, payload, status_);
  }
  return false;
}

template <class Request, class T>
bool join_connection::ask(const join::frame_header& header, const char* payload,
                          io_reply<T>& reply) {
  Request request;
  if (!join::read_payload(header, payload, request))
    return false;
  if (auto why = admit(request)) {
    join::append_error(out_, header.what, header.id, why);
    return true;
  }
  asked_ = header;
  door_.unit_.request(door_.options_.manager, std::move(request), reply, answer_deadline);
  return true;
}

bool join_connection::pending() const {
  return reserved_.pending() || finished_.pending() || acquired_.pending() || done_.pending()
         || status_.pending();
}

template <class T>
void join_connection::answer(io_reply<T>& reply) {
  if (!reply) {
    join::append_error(out_, asked_.what, asked_.id, reply.error());
  } else if constexpr (std::is_void_v<T>) {
    join::append_done(out_, asked_.what, asked_.id);
  } else {
    note(reply.value);
    join::append_frame(out_, asked_.what, asked_.id, reply.value);
  }
}

void join_connection::answer() {
  switch (asked_.what) {
    case join::op::hello:
      break;
    case join::op::reserve_chunks:
      answer(reserved_);
      break;
    case join::op::finish_chunks:
      answer(finished_);
      break;
    case join::op::acquire_chunks:
      answer(acquired_);
      break;
    case join::op::end_leases:
    case join::op::remove_object:
      answer(done_);
      break;
    case join::op::get_storage_status:
      answer(status_);
      break;
  }
  asked_ = {};
}

// -- what a request may say -------------------------------------------------------------

caf::error join_connection::admit(reserve_chunks& request) {
  request.owner = owner_;
  if (request.size_bytes == 0 || request.size_bytes > door_.options_.max_object_bytes)
    return caf::make_error(
      errc::too_large, "a chunk of " + std::to_string(request.size_bytes) + " bytes, not 1 to "
                         + std::to_string(door_.options_.max_object_bytes));
  if (request.tenant.size() > max_tenant_bytes)
    return wrong("the salt is too long");
  for (auto& chunk : request.chunks)
    if (!is_chunk(chunk.key) || !(chunk.parent.bytes.empty() || is_chunk(chunk.parent)))
      return wrong("not the name of a chunk");
  return caf::none;
}

caf::error join_connection::admit(finish_chunks& request) {
  request.reader = 0;
  if (!are_chunks(request.asked))
    return wrong("not the name of a chunk");
  auto before = request.writes.size();
  std::erase_if(request.writes, [this](const finish_write& write) {
    return writes_.erase(write.id) + expired_.erase(write.id) == 0;
  });
  door_.counters_.add(join_count::foreign_leases, before - request.writes.size());
  return caf::none;
}

caf::error join_connection::admit(acquire_chunks& request) {
  request.owner = owner_;
  return are_chunks(request.keys) ? caf::none : wrong("not the name of a chunk");
}

caf::error join_connection::admit(end_leases& request) {
  auto before = request.leases.size();
  std::erase_if(request.leases, [this](lease_id id) {
    return reads_.erase(id) + writes_.erase(id) + expired_.erase(id) == 0;
  });
  door_.counters_.add(join_count::foreign_leases, before - request.leases.size());
  return caf::none;
}

caf::error join_connection::admit(const remove_object& request) {
  return is_chunk(request.key) ? caf::none : wrong("not the name of a chunk");
}

void join_connection::note(const chunk_reservations& answer) {
  for (auto& chunk : answer.chunks)
    if (chunk.state == chunk_state::reserved)
      writes_.emplace(chunk.lease.id, door_.unit_.now());
  if (!writes_.empty() && !expiry_timer_.armed())
    door_.unit_.arm(expiry_timer_,
                    std::max(door_.options_.write_ttl / 4, shortest_expiry_look));
}

void join_connection::note(const chunks_acquired& answer) {
  for (auto& lease : answer.leases)
    reads_.insert(lease.id);
}

// -- time -------------------------------------------------------------------------------

void join_connection::on_hello_timer() {
  if (closed_ || state_ != state::greeting)
    return;
  stop_serving("no greeting in time");
  door_.unit_.schedule(*this);
}

/// Others may store under these keys from now on; the memory stays this engine's.
void join_connection::on_expiry_timer() {
  if (closed_)
    return;
  expire_writes request;
  const auto oldest = door_.unit_.now() - door_.options_.write_ttl;
  std::erase_if(writes_, [&](auto& entry) {
    if (entry.second > oldest)
      return false;
    request.leases.push_back(entry.first);
    return true;
  });
  if (!request.leases.empty()) {
    expired_.insert(request.leases.begin(), request.leases.end());
    door_.counters_.add(join_count::expired_writes, request.leases.size());
    door_.unit_.send(door_.options_.manager, std::move(request));
  }
  if (!writes_.empty())
    door_.unit_.arm(expiry_timer_,
                    std::max(door_.options_.write_ttl / 4, shortest_expiry_look));
}

} // namespace kvasir
