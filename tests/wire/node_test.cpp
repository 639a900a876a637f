// What a node does when one of its parts dies.
#include "support/node_fixture.hpp"

#include <caf/scoped_actor.hpp>

#include <poll.h>

using namespace kvasir;
using namespace kvasir::test;

TEST_CASE("when the storage manager dies, the node fails and its connections end") {
  node_fixture fixture;
  auto client = fixture.client();
  REQUIRE(client.put("m@1@0@1@half", to_bytes("x")));
  REQUIRE(fixture.served->status().healthy);
  {
    caf::scoped_actor self{fixture.served->system()};
    self->send_exit(fixture.served->manager(), caf::exit_reason::kill);
  }
  // The daemon watches this descriptor and exits with a failure.
  pollfd failed{fixture.served->failure_fd(), POLLIN, 0};
  CHECK(poll(&failed, 1, 20'000) == 1);
  client.send(raw_header{}.encode());
  CHECK(client.closed_by_server());
  CHECK_FALSE(fixture.served->status().healthy);
}

TEST_CASE("a second node cannot have the first one's port, and says so in one line") {
  node_fixture fixture;
  auto config = fixture.served->config();
  config.lm_port = fixture.served->lm_port();
  auto second = node::start(config);
  REQUIRE_FALSE(second);
  auto text = to_string(second.error());
  CHECK(text.find("cannot listen on 127.0.0.1") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(fixture.client().healthy());
}
