#include "messages/lm_unicode.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace kvasir;

TEST_SUITE("lm unicode") {
  TEST_CASE("there are as many decimal digits and blanks as CPython 3.11 knows") {
    int digits = 0;
    int sum = 0;
    int spaces = 0;
    for (char32_t c = 0; c <= 0x10ffff; ++c) {
      if (auto value = lm::decimal_value(c); value >= 0) {
        ++digits;
        sum += value;
      }
      spaces += lm::is_space(c) ? 1 : 0;
    }
    CHECK(digits == 660);
    CHECK(sum == 66 * 45);
    CHECK(spaces == 29);
    CHECK(lm::decimal_value(0xb2) == -1);
    CHECK(lm::decimal_value(0x2460) == -1);
    CHECK(lm::decimal_value('/') == -1);
  }

  TEST_CASE("blanks are stripped at both ends and nowhere else") {
    CHECK(lm::strip("") == "");
    CHECK(lm::strip(" \t\xe3\x80\x80") == "");
    CHECK(lm::strip("\xc2\xa0 a b\xe3\x80\x80\n") == "a b");
    CHECK(lm::strip("\xe2\x80\x8b") == "\xe2\x80\x8b"); // zero width, not a blank
    CHECK(lm::strip("\xc3\xa9") == "\xc3\xa9");
  }

  TEST_CASE("reading stops at the end and where a strict decoder fails") {
    size_t position = 0;
    CHECK(lm::next_code_point("\xf0\x9f\x9a\x80", position) == 0x1f680);
    CHECK(position == 4);
    CHECK_FALSE(lm::next_code_point("\xf0\x9f\x9a\x80", position));
    position = 0;
    CHECK_FALSE(lm::next_code_point("\xf0\x9f\x9a", position));
    CHECK(position == 0);
    CHECK(lm::has_control("\xff"));
    CHECK_FALSE(lm::has_control("a\xc2\xa0"));
  }
}
