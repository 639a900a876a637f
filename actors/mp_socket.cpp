#include "actors/mp_socket.hpp"

#include <cstring>
#include <utility>

namespace kvasir {

namespace {

constexpr auto monitor_address = "inproc://mp-monitor";
constexpr int linger_ms = 500;
constexpr int handshake_ms = 10'000;
constexpr int keepalive_idle_s = 60;

caf::error zmq_failure(const std::string& what, const zmq::error_t& why) {
  return caf::make_error(errc::io_error, what + ": " + why.what());
}

uint16_t port_of(const std::string& endpoint) {
  return static_cast<uint16_t>(std::stoul(endpoint.substr(endpoint.rfind(':') + 1)));
}

} // namespace

caf::expected<std::unique_ptr<mp_socket>> mp_socket::open(const std::string& host,
                                                          uint16_t port, const limits& how) {
  auto v6 = host.find(':') != std::string::npos;
  auto bracketed = v6 && host.front() != '[' ? "[" + host + "]" : host;
  auto address = "tcp://" + bracketed + ":" + (port == 0 ? "*" : std::to_string(port));
  try {
    std::unique_ptr<mp_socket> result{new mp_socket};
    result->router_ = zmq::socket_t{result->context_, zmq::socket_type::router};
    auto& router = result->router_;
    router.set(zmq::sockopt::router_mandatory, true);
    router.set(zmq::sockopt::ipv6, v6);
    router.set(zmq::sockopt::linger, linger_ms);
    router.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(how.max_frame_bytes));
    router.set(zmq::sockopt::rcvhwm, how.max_queued_requests);
    router.set(zmq::sockopt::sndhwm, how.max_queued_replies);
    router.set(zmq::sockopt::handshake_ivl, handshake_ms);
    router.set(zmq::sockopt::tcp_keepalive, 1);
    router.set(zmq::sockopt::tcp_keepalive_idle, keepalive_idle_s);
    constexpr int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED
                           | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL
                           | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
    if (zmq_socket_monitor(router.handle(), monitor_address, events) != 0)
      throw zmq::error_t{};
    result->monitor_ = zmq::socket_t{result->context_, zmq::socket_type::pair};
    result->monitor_.set(zmq::sockopt::linger, 0);
    result->monitor_.connect(monitor_address);
    router.bind(address);
    result->port_ = port_of(router.get(zmq::sockopt::last_endpoint));
    return result;
  } catch (const zmq::error_t& why) {
    return zmq_failure("cannot listen on " + address, why);
  }
}

mp_socket::~mp_socket() {
  if (router_)
    zmq_socket_monitor(router_.handle(), nullptr, 0);
}

int mp_socket::fd() {
  return router_.get(zmq::sockopt::fd);
}

int mp_socket::monitor_fd() {
  return monitor_.get(zmq::sockopt::fd);
}

// -- requests ---------------------------------------------------------------------------

mp_socket::received mp_socket::receive(mp_request& request) {
  request.arguments.clear();
  request.fd = -1;
  if (!router_.recv(request.peer, zmq::recv_flags::dontwait))
    return received::nothing;
  size_t frames = 0;
  auto more = request.peer.more();
  // The frames of one message are there together: none of these waits.
  while (more) {
    zmq::message_t frame;
    if (!router_.recv(frame, zmq::recv_flags::dontwait))
      return received::unusable;
    more = frame.more();
    switch (frames++) {
      case 0:
        request.fd = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
        connections_[request.fd] = true;
        request.uid = std::move(frame);
        break;
      case 1:
        request.operation = std::move(frame);
        break;
      default:
        if (request.arguments.size() <= max_arguments)
          request.arguments.push_back(std::move(frame));
    }
  }
  auto usable = frames >= 2 && request.uid.size() <= max_uid_bytes
                && request.operation.size() <= max_operation_bytes;
  return usable ? received::request : received::unusable;
}

// -- replies ----------------------------------------------------------------------------

mp_socket::sent mp_socket::send(const mp_request& to, zmq::message_t* result) {
  return send_as(to, zmq::message_t{to.operation.data(), to.operation.size()}, result);
}

mp_socket::sent mp_socket::send_as(const mp_request& to, zmq::message_t operation,
                                   zmq::message_t* result) {
  constexpr auto more = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
  try {
    // Only the first frame can be refused; the others follow it or are dropped with it.
    if (!router_.send(zmq::message_t{to.peer.data(), to.peer.size()}, more))
      return sent::peer_slow;
    router_.send(zmq::message_t{to.uid.data(), to.uid.size()}, more);
    router_.send(operation, result != nullptr ? more : zmq::send_flags::dontwait);
    if (result != nullptr)
      router_.send(*result, zmq::send_flags::dontwait);
    return sent::yes;
  } catch (const zmq::error_t& why) {
    return why.num() == EHOSTUNREACH ? sent::peer_gone : sent::failed;
  }
}

// -- connections ------------------------------------------------------------------------

bool mp_socket::next_event(mp_connection_event& event, int& fd) {
  for (;;) {
    zmq::message_t head;
    zmq::message_t address;
    if (!monitor_.recv(head, zmq::recv_flags::dontwait))
      return false;
    if (head.more() && !monitor_.recv(address, zmq::recv_flags::dontwait))
      return false;
    if (head.size() < 6)
      continue;
    uint16_t what = 0;
    uint32_t value = 0;
    std::memcpy(&what, head.data(), sizeof(what));
    std::memcpy(&value, static_cast<const char*>(head.data()) + sizeof(what), sizeof(value));
    fd = static_cast<int>(value);
    switch (what) {
      case ZMQ_EVENT_ACCEPTED:
        connections_.try_emplace(fd, false); // Its first request may have been read before.
        break;
      case ZMQ_EVENT_DISCONNECTED: {
        auto connection = connections_.extract(fd);
        event = connection.empty() || connection.mapped() ? mp_connection_event::closed
                                                          : mp_connection_event::closed_unused;
        return true;
      }
      default: // A failed handshake. The value is no descriptor.
        fd = -1;
        event = mp_connection_event::not_zmtp;
        return true;
    }
  }
}

} // namespace kvasir
