#include "messages/lm_frame.hpp"

#include <algorithm>

namespace kvasir::lm {

namespace {

// The first four bytes of HTTP/1 request lines and of HTTP/2's preface.
constexpr std::array<std::string_view, 10> http_starts{"GET ", "PUT ", "POST", "HEAD", "DELE",
                                                       "OPTI", "PATC", "CONN", "TRAC", "PRI "};
// Redis commands that are typed without RESP framing.
constexpr std::array<std::string_view, 6> redis_starts{"PING", "INFO", "AUTH",
                                                       "HELL", "QUIT", "SELE"};

template <size_t Count>
bool contains(const std::array<std::string_view, Count>& starts, std::string_view start) {
  return std::find(starts.begin(), starts.end(), start) != starts.end();
}

} // namespace

std::string_view to_string(protocol value) {
  switch (value) {
    case protocol::lm:
      return "lm";
    case protocol::http:
      return "http";
    case protocol::tls:
      return "tls";
    case protocol::zmtp:
      return "zmtp";
    case protocol::resp:
      return "resp";
    case protocol::unknown:
      return "unknown";
  }
  return "unknown";
}

protocol detect_protocol(std::span<const std::byte> first_bytes) {
  if (first_bytes.size() < 4)
    return protocol::unknown;
  auto at = [&](size_t i) {
    return std::to_integer<unsigned>(first_bytes[i]);
  };
  const std::string_view start{reinterpret_cast<const char*>(first_bytes.data()), 4};
  if (at(0) >= 1 && at(0) <= 5 && at(1) == 0 && at(2) == 0 && at(3) == 0)
    return protocol::lm;
  if (contains(http_starts, start))
    return protocol::http;
  // A handshake record of any version since SSL 3.0.
  if (at(0) == 0x16 && at(1) == 3 && at(2) <= 4)
    return protocol::tls;
  // ZMTP's signature: FF, eight bytes that stand for a length (0 or 1), 7F.
  if (at(0) == 0xff && at(1) == 0 && at(2) == 0 && at(3) == 0)
    return first_bytes.size() < 10 || at(9) == 0x7f ? protocol::zmtp : protocol::unknown;
  if ((start[0] == '*' && start[1] >= '0' && start[1] <= '9') || contains(redis_starts, start))
    return protocol::resp;
  return protocol::unknown;
}

} // namespace kvasir::lm
