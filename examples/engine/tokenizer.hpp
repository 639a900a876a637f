// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "examples/engine/gguf_file.hpp"

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

namespace kvasir::example {

/// Byte-level BPE as SmolLM2 has it, from the vocabulary and the merges in its GGUF file: texts of
/// UTF-8 to tokens and back. Control tokens written out in a text ("<|im_end|>") are that token.
///
/// Threading: const functions from several threads at once.
class tokenizer {
public:
  /// @returns `malformed_frame` or `not_found` for a file without a usable tokenizer of this kind.
  static caf::expected<tokenizer> load(const gguf_file& file);

  /// @returns `invalid_argument` if the text is no UTF-8, or has a byte that no token stands for.
  caf::expected<std::vector<uint32_t>> encode(std::string_view text) const;

  /// The bytes of known tokens; an unknown one has none. A character may be spread over tokens.
  std::string decode(std::span<const uint32_t> tokens) const;

  /// The token with which an answer ends.
  uint32_t end_token() const noexcept { return end_token_; }

private:
  /// What two neighbours become; those of the lowest rank do first.
  struct merge {
    size_t rank = 0;
    uint32_t token = 0;
  };

  static uint64_t pair_of(uint32_t left, uint32_t right) noexcept {
    return uint64_t{left} << 32 | right;
  }

  caf::error load_vocabulary(const gguf_file& file);
  caf::error load_merges(const gguf_file& file);
  caf::error compile_pattern();

  caf::error encode_plain(std::string_view text, std::vector<uint32_t>& into) const;
  caf::error encode_word(std::string_view word, std::vector<uint32_t>& into) const;
  void apply_merges(std::vector<uint32_t>& word) const;

  std::vector<std::string> tokens_;               ///< The bytes of each.
  std::unordered_map<std::string, uint32_t> ids_; ///< Of all but control tokens.
  std::vector<uint32_t> control_tokens_;
  std::unordered_map<uint64_t, merge> merges_;
  std::shared_ptr<const void> word_pattern_;
  uint32_t end_token_ = 0;
};

} // namespace kvasir::example
