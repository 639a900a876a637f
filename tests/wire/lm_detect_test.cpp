#include "messages/lm_frame.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

using namespace kvasir;
using namespace std::literals;

TEST_SUITE("lm detect") {
  TEST_CASE("the first bytes tell who took us for someone else") {
    struct {
      std::string_view bytes;
      lm::protocol expected;
    } const cases[] = {
      {"\1\0\0\0"sv, lm::protocol::lm},
      {"\5\0\0\0rest"sv, lm::protocol::lm},
      {"\0\0\0\0"sv, lm::protocol::unknown},
      {"\6\0\0\0"sv, lm::protocol::unknown},
      {"\1\0\0\1"sv, lm::protocol::unknown},
      {"GET /metrics HTTP/1.1\r\n"sv, lm::protocol::http},
      {"PUT /x"sv, lm::protocol::http},
      {"PRI * HTTP/2.0"sv, lm::protocol::http},
      {"\x16\3\1\2\0"sv, lm::protocol::tls},
      {"\x16\3\5\2"sv, lm::protocol::unknown},
      {"\xff\0\0\0"sv, lm::protocol::zmtp},
      {"\xff\0\0\0\0\0\0\0\1\x7f"sv, lm::protocol::zmtp},
      {"\xff\0\0\0\0\0\0\0\1\x7e"sv, lm::protocol::unknown},
      {"*1\r\n$4\r\nPING\r\n"sv, lm::protocol::resp},
      {"PING\r\n"sv, lm::protocol::resp},
      {"*x\r\n"sv, lm::protocol::unknown},
      {"SSH-2.0"sv, lm::protocol::unknown},
      {""sv, lm::protocol::unknown},
      {"\1\0\0"sv, lm::protocol::unknown},
    };
    for (const auto& x : cases) {
      CAPTURE(x.bytes);
      CHECK(lm::detect_protocol(golden::as_bytes(x.bytes)) == x.expected);
    }
  }

  TEST_CASE("every protocol has a name") {
    CHECK(lm::to_string(lm::protocol::lm) == "lm");
    CHECK(lm::to_string(lm::protocol::http) == "http");
    CHECK(lm::to_string(lm::protocol::tls) == "tls");
    CHECK(lm::to_string(lm::protocol::zmtp) == "zmtp");
    CHECK(lm::to_string(lm::protocol::resp) == "resp");
    CHECK(lm::to_string(lm::protocol::unknown) == "unknown");
    CHECK(lm::to_string(static_cast<lm::protocol>(200)) == "unknown");
  }
}
