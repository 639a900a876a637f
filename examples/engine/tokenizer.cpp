#define PCRE2_CODE_UNIT_WIDTH 8

#include "examples/engine/tokenizer.hpp"

#include <pcre2.h>

#include <algorithm>
#include <optional>

namespace kvasir::example {

namespace {

/// Cuts a text into the words that BPE works on: SmolLM2's digits one by one, then GPT-2's rule.
/// The last space before a word belongs to the word; before a digit it stays with the others.
constexpr std::string_view word_pattern = R"(\p{N}|'(?:[stmd]|re|ve|ll)| ?\p{L}+)"
                                          R"(| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+)";

constexpr int64_t control_type = 3;
constexpr size_t max_tokens = 1 << 24;

caf::error malformed(std::string what) {
  return caf::make_error(errc::malformed_frame,
                         "the GGUF file's tokenizer: " + std::move(what));
}

/// Vocabularies write each byte as one visible character: itself, or the next one from U+0100 on.
/// None if the text has another character.
/// Source: GPT-2's bytes_to_unicode.
std::optional<std::string> bytes_of(std::string_view written) {
  static const auto byte_of = [] {
    std::unordered_map<unsigned, char> result;
    for (unsigned byte = 0, next = 0x100; byte < 256; ++byte) {
      bool visible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      result.emplace(visible ? byte : next++, static_cast<char>(byte));
    }
    return result;
  }();
  std::string result;
  for (size_t i = 0; i < written.size(); ++i) {
    unsigned character = static_cast<unsigned char>(written[i]);
    if (character >= 0x80) { // All of them are of two bytes of UTF-8.
      if (character >> 5 != 0b110 || i + 1 == written.size())
        return std::nullopt;
      character = (character & 0x1f) << 6 | (static_cast<unsigned char>(written[++i]) & 0x3f);
    }
    auto found = byte_of.find(character);
    if (found == byte_of.end())
      return std::nullopt;
    result.push_back(found->second);
  }
  return result;
}

struct match_deleter {
  void operator()(pcre2_match_data* match) const noexcept { ::pcre2_match_data_free(match); }
};

} // namespace

caf::expected<tokenizer> tokenizer::load(const gguf_file& file) {
  tokenizer result;
  auto model = file.text("tokenizer.ggml.model");
  auto words = file.text("tokenizer.ggml.pre");
  if (!model || !words || *model != "gpt2" || *words != "smollm")
    return malformed("only gpt2 with the words of smollm is known here");
  if (auto why = result.load_vocabulary(file))
    return why;
  if (auto why = result.load_merges(file))
    return why;
  if (auto why = result.compile_pattern())
    return why;
  return result;
}

caf::error tokenizer::load_vocabulary(const gguf_file& file) {
  auto written = file.texts("tokenizer.ggml.tokens");
  auto types = file.integers("tokenizer.ggml.token_type");
  auto end = file.integer("tokenizer.ggml.eos_token_id");
  if (!written)
    return std::move(written.error());
  if (!types)
    return std::move(types.error());
  if (!end)
    return std::move(end.error());
  if (written->empty() || written->size() > max_tokens || types->size() != written->size())
    return malformed("the vocabulary and its types do not fit together");
  if (*end >= written->size())
    return malformed("the end token is not in the vocabulary");
  end_token_ = static_cast<uint32_t>(*end);
  for (uint32_t id = 0; id < written->size(); ++id) {
    if ((*types)[id] == control_type) {
      if ((*written)[id].empty())
        return malformed("token " + std::to_string(id) + " is empty");
      control_tokens_.push_back(id);
      tokens_.emplace_back((*written)[id]);
      continue;
    }
    auto bytes = bytes_of((*written)[id]);
    if (!bytes || !ids_.emplace(*bytes, id).second)
      return malformed("token " + std::to_string(id)
                       + " is no text of bytes, or not the first");
    tokens_.push_back(std::move(*bytes));
  }
  return caf::none;
}

caf::error tokenizer::load_merges(const gguf_file& file) {
  auto lines = file.texts("tokenizer.ggml.merges");
  if (!lines)
    return std::move(lines.error());
  auto id_of = [&](std::string_view written) {
    auto bytes = bytes_of(written);
    return bytes ? ids_.find(*bytes) : ids_.end();
  };
  for (auto line : *lines) {
    auto space = std::min(line.find(' '), line.size());
    auto left = id_of(line.substr(0, space));
    auto right = id_of(line.substr(std::min(space + 1, line.size())));
    if (left == ids_.end() || right == ids_.end())
      return malformed("a merge of what is no token");
    auto both = ids_.find(left->first + right->first);
    if (both == ids_.end())
      return malformed("a merge to what is no token");
    merges_.emplace(pair_of(left->second, right->second), merge{merges_.size(), both->second});
  }
  return caf::none;
}

caf::error tokenizer::compile_pattern() {
  int why = 0;
  PCRE2_SIZE where = 0;
  std::shared_ptr<pcre2_code> code{
    ::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(word_pattern.data()), word_pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &why, &where, nullptr),
    ::pcre2_code_free};
  if (!code)
    return caf::make_error(errc::out_of_memory, "PCRE2 error " + std::to_string(why));
  word_pattern_ = std::move(code);
  return caf::none;
}

caf::expected<std::vector<uint32_t>> tokenizer::encode(std::string_view text) const {
  std::vector<uint32_t> result;
  while (!text.empty()) {
    auto begin = text.size();
    std::optional<uint32_t> control;
    for (auto id : control_tokens_)
      if (auto found = text.find(tokens_[id]); found < begin) {
        begin = found;
        control = id;
      }
    if (auto why = encode_plain(text.substr(0, begin), result))
      return why;
    text.remove_prefix(begin);
    if (control) {
      result.push_back(*control);
      text.remove_prefix(tokens_[*control].size());
    }
  }
  return result;
}

caf::error tokenizer::encode_plain(std::string_view text, std::vector<uint32_t>& into) const {
  auto pattern = static_cast<const pcre2_code*>(word_pattern_.get());
  std::unique_ptr<pcre2_match_data, match_deleter> match{::pcre2_match_data_create(1, nullptr)};
  auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // Every character belongs to a word: the next one begins where the last one ended.
  for (size_t at = 0; at < text.size();) {
    auto checked = at == 0 ? 0u : PCRE2_NO_UTF_CHECK;
    auto found = ::pcre2_match(pattern, subject, text.size(), at, checked | PCRE2_ANCHORED,
                               match.get(), nullptr);
    if (found < 0)
      return caf::make_error(errc::invalid_argument,
                             "the text is no UTF-8 that can be cut into "
                             "words (PCRE2 error "
                               + std::to_string(found) + ")");
    auto end = ::pcre2_get_ovector_pointer(match.get())[1];
    if (auto why = encode_word(text.substr(at, end - at), into))
      return why;
    at = end;
  }
  return caf::none;
}

caf::error tokenizer::encode_word(std::string_view word, std::vector<uint32_t>& into) const {
  std::vector<uint32_t> tokens;
  for (auto byte : word) {
    auto found = ids_.find(std::string(1, byte));
    if (found == ids_.end())
      return caf::make_error(errc::invalid_argument,
                             "the vocabulary has no token for byte "
                               + std::to_string(static_cast<unsigned char>(byte)));
    tokens.push_back(found->second);
  }
  apply_merges(tokens);
  into.insert(into.end(), tokens.begin(), tokens.end());
  return caf::none;
}

void tokenizer::apply_merges(std::vector<uint32_t>& word) const {
  for (;;) {
    std::optional<uint64_t> best;
    merge to{SIZE_MAX, 0};
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      auto pair = pair_of(word[i], word[i + 1]);
      auto found = merges_.find(pair);
      if (found != merges_.end() && found->second.rank < to.rank) {
        best = pair;
        to = found->second;
      }
    }
    if (!best)
      return;
    size_t kept = 0;
    for (size_t i = 0; i < word.size(); ++i) {
      bool joined = i + 1 < word.size() && pair_of(word[i], word[i + 1]) == *best;
      word[kept++] = joined ? to.token : word[i];
      i += joined;
    }
    word.resize(kept);
  }
}

std::string tokenizer::decode(std::span<const uint32_t> tokens) const {
  std::string result;
  for (auto token : tokens)
    if (token < tokens_.size())
      result += tokens_[token];
  return result;
}

} // namespace kvasir::example
