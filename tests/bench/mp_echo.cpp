// A ROUTER that answers every request at once with the same result, or with none where the protocol
// has none, and does nothing else: what a server of the MP protocol reaches of its rate is what
// remains after its work.

#include "socket_io.hpp"

#include <CLI/CLI.hpp>
#include <zmq.hpp>

#include <cstdio>

int main(int argc, char** argv) try {
  std::uint16_t port = 0;
  CLI::App app{"Echoes the id and operation of MP requests: the ceiling of ZeroMQ here."};
  app.add_option("--port", port, "Port on 127.0.0.1; 0 = any free one");
  CLI11_PARSE(app, argc, argv);

  zmq::context_t context;
  zmq::socket_t socket{context, zmq::socket_type::router};
  socket.set(zmq::sockopt::router_mandatory, true);
  socket.bind("tcp://127.0.0.1:" + (port == 0 ? "*" : std::to_string(port)));
  auto address = socket.get(zmq::sockopt::last_endpoint);
  std::printf("mp_echo ready mp=%s\n", address.substr(address.rfind('/') + 1).c_str());
  std::fflush(stdout);
  for (;;) {
    zmq::message_t frames[3]; // routing id, request id, operation
    std::size_t count = 0;
    auto more = true;
    for (zmq::message_t dropped; more; ++count) {
      auto& frame = count < 3 ? frames[count] : dropped;
      (void)socket.recv(frame);
      more = frame.more();
    }
    if (count < 3)
      continue;
    // Without a result: lookup, free_lookup_locks, end_session.
    auto operation = frames[2].to_string_view();
    auto has_result = operation != "\x08" && operation != "\x0c" && operation != "\x0d";
    socket.send(frames[0], zmq::send_flags::sndmore);
    socket.send(frames[1], zmq::send_flags::sndmore);
    socket.send(frames[2], has_result ? zmq::send_flags::sndmore : zmq::send_flags::none);
    if (has_result)
      socket.send(zmq::str_buffer("\1"), zmq::send_flags::none);
  }
} catch (const std::exception& error) {
  kvasir::bench::give_up(error.what());
}
