#include "actors/mp_clients.hpp"

#include <algorithm>

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
    by_fd_[fd] = result.id;
  }
  result.suspect = false;
  result.last_seen = now;
  return result;
}

mp_clients::client* mp_clients::find(client_id id) {
  auto i = by_id_.find(id);
  return i == by_id_.end() ? nullptr : i->second;
}

client_id mp_clients::closed(int fd) {
  auto node = by_fd_.extract(fd);
  if (node.empty())
    return 0;
  if (auto who = find(node.mapped()))
    who->suspect = true;
  return node.mapped();
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
