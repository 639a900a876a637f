#include "actors/embedding/node_link.hpp"

#include "actors/handover.hpp"

#include <caf/mailbox_element.hpp>
#include <caf/system_messages.hpp>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>

namespace kvasir {

namespace {

constexpr size_t read_bytes = 64 * 1024;

caf::error unreachable(const std::string& cause) {
  return caf::make_error(errc::peer_unreachable, cause);
}

std::string errno_text() {
  return errno == EAGAIN ? "no answer in time" : std::generic_category().message(errno);
}

caf::error send_all(int fd, std::span<const char> bytes) {
  while (!bytes.empty()) {
    auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return unreachable("the node did not take the greeting: " + errno_text());
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return caf::none;
}

/// Fills `into`; file descriptors come with the first bytes.
caf::error receive_all(int fd, std::span<char> into, std::vector<socket_handle>& fds) {
  while (!into.empty()) {
    auto got = receive_with_fds(fd, into, fds);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return unreachable("the node did not answer the greeting: "
                         + (got == 0 ? "it closed the connection" : errno_text()));
    into = into.subspan(static_cast<size_t>(got));
  }
  return caf::none;
}

} // namespace

caf::expected<joined_node> join_node(const std::string& path, const join::hello& who,
                                     std::chrono::milliseconds timeout) {
  auto socket = connect_to_path(path, timeout);
  if (!socket)
    return std::move(socket.error());
  std::vector<char> greeting;
  join::append_frame(greeting, join::op::hello, 0, who);
  if (auto why = send_all(socket->fd(), greeting))
    return why;
  joined_node result;
  join::frame_header header;
  if (auto why = receive_all(socket->fd(), {reinterpret_cast<char*>(&header), sizeof(header)},
                             result.fds))
    return why;
  if (header.what != join::op::hello || header.payload_bytes > read_bytes)
    return unreachable("'" + path + "' is not a node's socket");
  std::vector<char> payload(header.payload_bytes);
  if (auto why = receive_all(socket->fd(), payload, result.fds))
    return why;
  if (header.status != 0)
    return join::error_of(header, payload.data());
  if (!join::read_payload(header, payload.data(), result.welcome)
      || result.welcome.magic != join::magic || result.welcome.version != join::version)
    return caf::make_error(errc::invalid_argument,
                           "the node at '" + path + "' speaks another version of joining");
  result.socket = std::move(*socket);
  return result;
}

node_link::node_link(caf::actor_config& config, io_unit& unit, socket_handle socket)
  : caf::monitorable_actor(config),
    unit_(unit),
    socket_(std::move(socket)) {}

node_link::~node_link() = default;

void node_link::open() {
  unit_.post([this] {
    if (unit_.watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, reader_))
      unit_.schedule(reader_);
    else
      fall_silent();
  });
}

void node_link::leave() {
  std::unordered_map<uint64_t, asker> dropped; // Their ends may lead back here.
  std::lock_guard lock{mutex_};
  gone_ = true;
  dropped.swap(unanswered_);
}

// -- asking -----------------------------------------------------------------------------

void node_link::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  if (!element)
    return;
  handover_acquire(this);
  auto sent = forward<acquire_chunks>(*element) || forward<reserve_chunks>(*element)
              || forward<finish_chunks>(*element) || forward<end_leases>(*element)
              || forward<remove_object>(*element) || forward<get_storage_status>(*element);
  if (!sent)
    bounce(element);
}

template <class Request>
bool node_link::forward(caf::mailbox_element& element) {
  auto& content = element.content();
  if (!content.match_elements<Request>())
    return false;
  auto& request = content.get_as<Request>(0);
  asker from;
  if (element.mid.is_request())
    from = {element.sender, element.mid};
  constexpr auto what = join::question<Request>::code;
  caf::error refused;
  {
    std::lock_guard lock{mutex_};
    if (gone_) {
      refused = unreachable("the node is gone");
    } else if (from.who && unanswered_.size() >= max_unanswered) {
      refused = caf::make_error(errc::busy);
    } else {
      const auto id = next_id_++;
      join::append_frame(out_, what, id, request);
      if (from.who)
        unanswered_.emplace(id, from);
      // What the socket does not take now is sent when it has room again.
      flush_locked();
    }
  }
  if (refused && from.who)
    give(from, std::move(refused));
  return true;
}

/// @returns false if the socket is broken, which reading will find, too.
bool node_link::flush_locked() {
  size_t done = 0;
  auto intact = true;
  while (done < out_.size() && intact) {
    auto sent = ::send(socket_.fd(), out_.data() + done, out_.size() - done,
                       MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN)
      break;
    intact = sent > 0 || errno == EINTR;
    done += static_cast<size_t>(std::max<ssize_t>(sent, 0));
  }
  out_.erase(out_.begin(), out_.begin() + static_cast<ptrdiff_t>(done));
  return intact;
}

// -- answers ----------------------------------------------------------------------------

void node_link::read() {
  {
    std::lock_guard lock{mutex_};
    if (gone_)
      return;
    flush_locked();
  }
  for (;;) {
    const auto had = in_.size();
    in_.resize(had + read_bytes);
    auto got = recv(socket_.fd(), in_.data() + had, read_bytes, MSG_DONTWAIT);
    in_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && errno == EAGAIN)
      return;
    if (got <= 0 || !take_frames()) {
      unit_.unwatch(socket_.fd());
      fall_silent();
      return;
    }
  }
}

/// @returns false if what came is no answer.
bool node_link::take_frames() {
  size_t begin = 0;
  join::frame_header header;
  while (in_.size() - begin >= sizeof(header)) {
    std::memcpy(&header, in_.data() + begin, sizeof(header));
    if (header.payload_bytes > join::max_payload_bytes)
      return false;
    if (in_.size() - begin - sizeof(header) < header.payload_bytes)
      break;
    if (!deliver(header, in_.data() + begin + sizeof(header)))
      return false;
    begin += sizeof(header) + header.payload_bytes;
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(begin));
  return true;
}

bool node_link::deliver(const join::frame_header& header, const char* payload) {
  asker to;
  {
    std::lock_guard lock{mutex_};
    auto found = unanswered_.find(header.id);
    if (found == unanswered_.end())
      return true; // Nobody waits for it.
    to = std::move(found->second);
    unanswered_.erase(found);
  }
  if (header.status != 0) {
    give(to, join::error_of(header, payload));
    return true;
  }
  switch (header.what) {
    case join::op::reserve_chunks:
      return deliver_as<chunk_reservations>(to, header, payload);
    case join::op::finish_chunks:
      return deliver_as<chunks_finished>(to, header, payload);
    case join::op::acquire_chunks:
      return deliver_as<chunks_acquired>(to, header, payload);
    case join::op::get_storage_status:
      return deliver_as<storage_status>(to, header, payload);
    case join::op::hello:
    case join::op::end_leases:
    case join::op::remove_object:
      break;
  }
  give(to, unreachable("the node's answer is of another kind"));
  return false;
}

template <class Answer>
bool node_link::deliver_as(const asker& to, const join::frame_header& header,
                           const char* payload) {
  Answer answer;
  if (!join::read_payload(header, payload, answer)) {
    give(to, unreachable("the node's answer is malformed"));
    return false;
  }
  to.who->enqueue(caf::make_mailbox_element(caf::strong_actor_ptr{ctrl()},
                                            to.asked.response_id(), {}, std::move(answer)),
                  nullptr);
  return true;
}

void node_link::give(const asker& to, caf::error why) {
  to.who->enqueue(caf::make_mailbox_element(caf::strong_actor_ptr{ctrl()},
                                            to.asked.response_id(), {}, std::move(why)),
                  nullptr);
}

void node_link::fall_silent() {
  std::unordered_map<uint64_t, asker> left;
  {
    std::lock_guard lock{mutex_};
    gone_ = true;
    left.swap(unanswered_);
  }
  for (auto& [id, to] : left)
    give(to, unreachable("the node is gone"));
}

} // namespace kvasir
