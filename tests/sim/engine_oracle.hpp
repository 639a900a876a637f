// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "backends/checksum.hpp"
#include "support/engine_fixture.hpp"

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kvasir::test {

/// What must hold of an engine world, kept apart from the code that is tested: what lies in each
/// page, who may write it, and how many retrieves were announced.
class engine_oracle {
public:
  explicit engine_oracle(unsigned hash_bits) : hash_bits_(hash_bits) {}

  /// Empty, or the first thing that did not hold.
  const std::string& failure() const { return failure_; }

  void check(bool holds, const std::string& what) {
    if (!holds && failure_.empty())
      failure_ = what;
  }

  // -- what chunks are made of ----------------------------------------------------------

  object_key key_of(const prompt& tokens, size_t chunk) const {
    mp::token_chain chain{engine_fixture::usual_sessions(hash_bits_).hasher};
    chain.extend(tokens);
    mp::chunk_key_prefix prefix{1, page_layout().digest(), "", "model"};
    return prefix.key(chain.chunk(chunk), 0);
  }

  /// By tokens alone: what shares a hash must not share this.
  static uint64_t content_of(const prompt_range& what, size_t index) {
    auto end = (what.start / chunk_tokens + index + 1) * chunk_tokens;
    return checksum(std::as_bytes(std::span{what.tokens}.first(end)));
  }

  // -- pages ----------------------------------------------------------------------------

  void write(uint64_t offset, uint64_t content) { memory_[offset] = content; }

  void read(uint64_t offset, uint64_t expected, const std::string& otherwise) {
    check(memory_[offset] == expected, otherwise);
  }

  void grant(uint64_t offset) {
    check(writable_.insert(offset).second,
          "a slot that somebody may still write was given to another");
  }

  void ungrant(uint64_t offset) { writable_.erase(offset); }

  // -- tickets --------------------------------------------------------------------------

  /// A lookup of this request and these tokens was asked for. It may find less than all.
  void announce(const std::string& request, const prompt& tokens, uint32_t readers) {
    prompt_range all{"", 1, 0, "", "", tokens, 0, tokens.size()};
    for (size_t i = 0; i < tokens.size() / chunk_tokens; ++i)
      tickets_[{request, content_of(all, i)}] += readers;
  }

  void retrieve(const prompt_range& what) {
    for (size_t i = 0; i < (what.end - what.start) / chunk_tokens; ++i) {
      auto& left = tickets_[{what.request_id, content_of(what, i)}];
      check(left > 0, "a retrieve succeeded that no lookup announced");
      left -= left > 0 ? 1 : 0;
    }
  }

private:
  unsigned hash_bits_;
  std::string failure_;
  std::map<uint64_t, uint64_t> memory_; ///< Content by offset.
  std::set<uint64_t> writable_;         ///< Offsets that somebody may write.
  std::map<std::pair<std::string, uint64_t>, uint64_t> tickets_;
};

} // namespace kvasir::test
