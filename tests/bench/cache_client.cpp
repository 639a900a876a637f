#include "cache_client.hpp"

#include "lm_client.hpp"
#include "resp_client.hpp"

namespace kvasir::bench {

std::unique_ptr<cache_client> connect_client(const client_options& options) {
  auto socket = tcp_socket::connect_to(options.peer, !options.split_sends, options.timeout);
  if (options.speaks == protocol::resp)
    return std::make_unique<resp_client>(std::move(socket));
  return std::make_unique<lm_client>(std::move(socket), options.split_sends);
}

} // namespace kvasir::bench
