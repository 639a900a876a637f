#include "apps/lm_client.hpp"

#include "messages/errc.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

namespace kvasir {

namespace {

constexpr size_t piece_bytes = 1 << 20;

} // namespace

lm_client::lm_client(socket_handle socket, std::string peer) noexcept
  : socket_(std::move(socket)),
    peer_(std::move(peer)) {}

caf::expected<lm_client> lm_client::connect(const std::string& host, uint16_t port,
                                            std::chrono::milliseconds timeout) {
  auto socket = connect_to(host, port, static_cast<int>(timeout.count()));
  if (!socket)
    return std::move(socket.error());
  return lm_client{std::move(*socket), host + ":" + std::to_string(port)};
}

caf::expected<bool> lm_client::health() {
  return ask(lm::command::health, {});
}

caf::expected<bool> lm_client::exist(const std::string& key) {
  return ask(lm::command::exist, key);
}

caf::expected<bool> lm_client::put(const std::string& key, const object_layout& layout,
                                   uint32_t size_bytes, const source& next) {
  if (auto failed = send_header(lm::command::put, key, layout, size_bytes))
    return failed;
  std::vector<std::byte> piece(std::min<size_t>(size_bytes, piece_bytes));
  for (uint32_t left = size_bytes; left > 0;) {
    auto got = next(std::span{piece}.first(std::min<size_t>(piece.size(), left)));
    if (got == 0)
      return caf::make_error(errc::io_error, "the value ended early: nothing was stored");
    if (auto failed = send(std::span{piece}.first(got)))
      return failed;
    left -= static_cast<uint32_t>(got);
  }
  return exist(key);
}

caf::expected<std::optional<lm_client::value_info>> lm_client::get(const std::string& key) {
  if (auto failed = send_header(lm::command::get, key, lm::server_header{}.layout, 0))
    return failed;
  auto header = reply();
  if (!header)
    return std::move(header.error());
  if (header->code != lm::return_code::success)
    return std::optional<value_info>{};
  return std::optional{value_info{static_cast<uint32_t>(header->length), header->layout}};
}

caf::error lm_client::receive(uint32_t size_bytes, const sink& take) {
  std::vector<std::byte> piece(std::min<size_t>(size_bytes, piece_bytes));
  for (uint32_t left = size_bytes; left > 0;) {
    auto part = std::span{piece}.first(std::min<size_t>(piece.size(), left));
    if (auto failed = receive_all(part))
      return failed;
    if (!take(part))
      return caf::make_error(errc::io_error, "the value could not be written");
    left -= static_cast<uint32_t>(part.size());
  }
  return caf::none;
}

caf::expected<bool> lm_client::ask(lm::command op, const std::string& key) {
  if (auto failed = send_header(op, key, lm::server_header{}.layout, 0))
    return failed;
  auto header = reply();
  if (!header)
    return std::move(header.error());
  return header->code == lm::return_code::success;
}

caf::error lm_client::send_header(lm::command op, const std::string& key,
                                  const object_layout& layout, uint32_t size_bytes) {
  lm::client_header header;
  header.op = op;
  header.key = key;
  header.layout = layout;
  header.length = static_cast<int32_t>(size_bytes);
  auto bytes = lm::encode_client_header(header);
  if (!bytes)
    return std::move(bytes.error());
  return send(*bytes);
}

caf::expected<lm::server_header> lm_client::reply() {
  lm::server_header_bytes bytes{};
  if (auto failed = receive_all(bytes))
    return failed;
  auto header = lm::parse_server_header(bytes);
  if (!header)
    return caf::make_error(errc::malformed_frame, peer_ + " does not answer as lm:// does");
  return header;
}

caf::error lm_client::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    auto sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes = bytes.subspan(static_cast<size_t>(sent));
    else if (errno != EINTR)
      return failure("take the request");
  }
  return caf::none;
}

caf::error lm_client::receive_all(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    auto got = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
    if (got > 0)
      bytes = bytes.subspan(static_cast<size_t>(got));
    else if (got == 0)
      return caf::make_error(errc::peer_unreachable, peer_ + " closed the connection");
    else if (errno != EINTR)
      return failure("answer");
  }
  return caf::none;
}

caf::error lm_client::failure(const char* doing) const {
  if (errno == EAGAIN)
    return caf::make_error(errc::timed_out, peer_ + " does not " + doing + " in time");
  return caf::make_error(errc::peer_unreachable,
                         peer_ + ": " + std::generic_category().message(errno));
}

} // namespace kvasir
