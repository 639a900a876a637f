#include "actors/mp_clients.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace std::chrono_literals;

namespace {

const mp_clients::clock::time_point start{};

} // namespace

TEST_CASE("a client whose connection is gone and that stays silent is forgotten") {
  mp_clients clients;
  auto id = clients.seen("a", 7, start).id;
  CHECK(clients.connected(id));
  CHECK(clients.take_gone(start + 1h, 10s).empty());
  clients.closed(7);
  CHECK_FALSE(clients.connected(id));
  CHECK(clients.take_gone(start + 9s, 10s).empty());
  CHECK(clients.take_gone(start + 10s, 10s) == std::vector{id});
  CHECK(clients.count() == 0);
  CHECK_FALSE(clients.connected(id));
}

TEST_CASE("traffic clears a client that was suspected for another's descriptor") {
  mp_clients clients;
  auto id = clients.seen("a", 7, start).id;
  clients.closed(7);
  clients.seen("a", 7, start + 5s);
  CHECK(clients.connected(id));
  CHECK(clients.take_gone(start + 1h, 10s).empty());
  clients.closed(7);
  CHECK_FALSE(clients.connected(id));
}

TEST_CASE("a descriptor that is used again says that its former client is gone") {
  mp_clients clients;
  auto first = clients.seen("a", 7, start).id;
  auto second = clients.seen("b", 7, start).id; // Before the event of the first one's end.
  CHECK_FALSE(clients.connected(first));
  CHECK(clients.connected(second));
  clients.closed(7);
  clients.seen("b", 7, start + 5s);
  CHECK(clients.take_gone(start + 12s, 10s) == std::vector{first});
  CHECK(clients.connected(second));
}

TEST_CASE("a request that is read after its connection's end leaves no client behind") {
  mp_clients clients;
  clients.closed(7);
  auto id = clients.seen("a", 7, start).id;
  clients.unreachable("a");
  clients.unreachable("nobody");
  CHECK_FALSE(clients.connected(id));
  CHECK(clients.take_gone(start + 10s, 10s) == std::vector{id});
}
