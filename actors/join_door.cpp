#include "actors/join_door.hpp"

#include "actors/join_connection.hpp"

#include <future>
#include <utility>

namespace kvasir {

const std::array<count_info, static_cast<size_t>(join_count::count_)>& join_count_infos() {
  static constexpr std::array<count_info, static_cast<size_t>(join_count::count_)> infos{{
    {"engines_joined", "Engines that joined by the Unix socket"},
    {"engines_left", "Engines that left, or ended"},
    {"engines_refused", "Engines that were not let in: a limit, another user or version"},
    {"join_requests", "Requests of joined engines"},
    {"join_protocol_errors", "Joined engines that are not served any more: malformed frames"},
    {"join_foreign_leases", "Leases that an engine named and that are not its own"},
    {"join_expired_writes", "Reservations of joined engines that gave up their key"},
  }};
  return infos;
}

join_door::join_door(io_unit& unit, unix_listener listener, join_options options)
  : unit_(unit),
    listener_(std::move(listener)),
    options_(std::move(options)) {
  acceptor_ = std::make_unique<acceptor>(
    unit_, listener_.take_socket(),
    [this](socket_handle accepted) { accept(std::move(accepted)); },
    [this] { counters_.add(join_count::refused); });
  unit_.post([this] { acceptor_->open(); });
}

join_door::~join_door() {
  close();
}

void join_door::accept(socket_handle socket) {
  if (connections_.size() >= options_.max_engines || !peer_is_same_user(socket.fd())) {
    counters_.add(join_count::refused);
    return;
  }
  auto connection = std::make_unique<join_connection>(*this, std::move(socket));
  auto& added = *connection;
  connections_.emplace(&added, std::move(connection));
  ++open_;
  added.open();
}

void join_door::remove(join_connection& connection) {
  auto found = connections_.extract(&connection);
  if (found.empty())
    return;
  --open_;
  unit_.retire(std::move(found.mapped()));
}

void join_door::close() {
  if (std::exchange(closed_, true))
    return;
  listener_.withdraw();
  // Shared: the unit's thread still touches it after this one was woken.
  auto done = std::make_shared<std::promise<void>>();
  unit_.post([this, done] {
    unit_.retire(std::move(acceptor_));
    while (!connections_.empty())
      connections_.begin()->first->close();
    done->set_value();
  });
  done->get_future().wait();
}

front_door_status join_door::status() const {
  counter_set<join_count>::values sum{};
  counters_.add_to(sum);
  return {open_.load(), {sum.begin(), sum.end()}};
}

} // namespace kvasir
