#include "fuzz/lm_properties.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>

using namespace kvasir;

namespace {

/// Runs `check` on every file of a fuzzer's corpus. @returns how many there were.
template <class Check>
size_t replay(const char* corpus, Check check) {
  const auto folder
    = std::filesystem::path{KVASIR_GOLDEN_DIR}.parent_path() / "fuzz/corpus" / corpus;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    CAPTURE(entry.path().string());
    std::ifstream file{entry.path(), std::ios::binary};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    const char* broken = check(text);
    CHECK_MESSAGE(broken == nullptr, broken);
    ++count;
  }
  return count;
}

} // namespace

TEST_SUITE("lm corpus") {
  TEST_CASE("what the fuzzers start from and once found keeps holding") {
    CHECK(replay("lm_frame",
                 [](std::string_view text) {
                   return lm::properties::check_frame(golden::as_bytes(text));
                 })
          > 50);
    CHECK(
      replay("lm_key", [](std::string_view text) { return lm::properties::check_key(text); })
      > 50);
    CHECK(replay("lm_remote_metadata",
                 [](std::string_view text) {
                   return lm::properties::check_remote_metadata(golden::as_bytes(text));
                 })
          > 10);
  }
}
