// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace kvasir::test {

/// A folder of the test's own, gone with it.
class scratch_folder {
public:
  scratch_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvasir_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~scratch_folder() { std::filesystem::remove_all(path_); }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  std::string operator/(const char* name) const { return (path_ / name).string(); }

private:
  std::filesystem::path path_;
};

} // namespace kvasir::test
