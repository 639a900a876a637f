// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

/// What the fuzzers start from and once found, replayed by every compiler.
namespace corpus {

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

} // namespace corpus
