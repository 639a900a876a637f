#include "actors/mp_clients.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

mp_clients::client& mp_clients::seen(std::string_view routing_id, int fd,
                                     clock::time_point now) {
  auto [i, is_new] = by_routing_id_.try_emplace(std::string{routing_id});
  auto& result = i->second;
  if (is_new) {
    result.id = ++last_;
    by_id_.emplace(result.id, &result);
  }
  if (fd >= 0 && (result.fd != fd || result.suspect)) {
    result.fd = fd;
    // Whoever had it before has lost it: the event that says so may be taken for this client's.
    auto before = std::exchange(by_fd_[fd], result.id);
    if (auto other = before == result.id ? nullptr : find(before))
      other->suspect = true;
  }
  result.suspect = false;
  result.last_seen = now;
  return result;
}

mp_clients::client* mp_clients::find(client_id id) {
  auto i = by_id_.find(id);
  return i == by_id_.end() ? nullptr : i->second;
}

bool mp_clients::connected(client_id id) const {
  auto i = by_id_.find(id);
  return i != by_id_.end() && !i->second->suspect;
}

void mp_clients::closed(int fd) {
  auto node = by_fd_.extract(fd);
  if (auto who = node.empty() ? nullptr : find(node.mapped()))
    who->suspect = true;
}

std::vector<client_id> mp_clients::take_gone(clock::time_point now, clock::duration limit) {
  std::vector<client_id> gone;
  auto forget = [&](auto i) {
    gone.push_back(i->second.id);
    by_id_.erase(i->second.id);
    return by_routing_id_.erase(i);
  };
  for (auto i = by_routing_id_.begin(); i != by_routing_id_.end();)
    i = i->second.suspect && i->second.last_seen + limit <= now ? forget(i) : std::next(i);
  while (by_routing_id_.size() > max_clients)
    forget(std::min_element(by_routing_id_.begin(), by_routing_id_.end(), [](auto& a, auto& b) {
      return a.second.last_seen < b.second.last_seen;
    }));
  return gone;
}

} // namespace kvasir
