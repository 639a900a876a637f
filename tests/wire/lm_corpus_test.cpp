#include "fuzz/lm_properties.hpp"
#include "wire/corpus.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

using namespace kvasir;

TEST_SUITE("lm corpus") {
  TEST_CASE("what the fuzzers start from and once found keeps holding") {
    CHECK(corpus::replay("lm_frame",
                         [](std::string_view text) {
                           return lm::properties::check_frame(golden::as_bytes(text));
                         })
          > 50);
    CHECK(corpus::replay("lm_key",
                         [](std::string_view text) { return lm::properties::check_key(text); })
          > 50);
    CHECK(corpus::replay("lm_remote_metadata",
                         [](std::string_view text) {
                           return lm::properties::check_remote_metadata(golden::as_bytes(text));
                         })
          > 10);
  }
}
