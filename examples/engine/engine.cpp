// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0
//
// A small inference engine with kvasir inside: examples/engine/README.md.

#include "backends/checksum.hpp"
#include "examples/engine/inference_engine.hpp"
#include "examples/engine/tokenizer.hpp"

#include <CLI/CLI.hpp>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>

namespace {

using namespace kvasir;
using namespace kvasir::example;

/// As given on the command line.
struct settings {
  std::string model;
  std::vector<std::string> prompts; ///< Files.
  std::string logits;               ///< A file, or empty.
  std::string node; ///< The socket of a kvasird, or empty.
  uint64_t pool_bytes = 512 << 20;
  size_t max_tokens = 4096;
  size_t new_tokens = 32;
};

std::string text_of(const caf::error& why) {
  auto& context = why.context();
  return context.match_elements<std::string>() ? context.get_as<std::string>(0)
                                               : to_string(why);
}

/// Ends the program with the error's text: here is nobody who could do better.
template <class T>
T value_or_exit(caf::expected<T> got) {
  if (!got)
    throw std::runtime_error{text_of(got.error())};
  return std::move(*got);
}

std::string read_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::string result{std::istreambuf_iterator<char>{file}, {}};
  if (!file)
    throw std::runtime_error{"cannot read " + path};
  return result;
}

/// Weights that differ must not share KV: the name ends in a checksum of the whole file.
std::string name_of(const gguf_file& file) {
  auto name = file.text("general.name");
  char digest[17];
  std::snprintf(digest, sizeof digest, "%016llx",
                static_cast<unsigned long long>(checksum(file.bytes())));
  return std::string{name ? *name : "model"} + "@" + digest;
}

/// An answer may stop within a character, which JSON cannot say.
void print_line(const nlohmann::json& line) {
  std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

void print(const std::string& path, const answer& got, const tokenizer& words) {
  print_line({
    {"prompt", path},
    {"prompt_tokens", got.reused_tokens + got.computed_tokens},
    {"reused_tokens", got.reused_tokens},
    {"computed_tokens", got.computed_tokens},
    {"stored_chunks", got.stored_chunks},
    {"cache_faults", got.cache_faults},
    {"load_seconds", got.load_seconds},
    {"prefill_seconds", got.prefill_seconds},
    {"decode_seconds", got.decode_seconds},
    {"tokens", got.tokens},
    {"text", words.decode(got.tokens)},
  });
}

void tokenize(const settings& given) {
  auto file = value_or_exit(gguf_file::open(given.model));
  auto words = value_or_exit(tokenizer::load(file));
  for (auto& path : given.prompts) {
    auto tokens = value_or_exit(words.encode(read_text(path)));
    print_line({{"prompt", path}, {"tokens", tokens}, {"text", words.decode(tokens)}});
  }
}

void serve(const settings& given, size_t max_new_tokens) {
  auto file = value_or_exit(gguf_file::open(given.model));
  auto words = value_or_exit(tokenizer::load(file));
  llama_decoder model{value_or_exit(llama_weights::load(file))};
  auto options = cache_options(name_of(file), model.shape(), given.pool_bytes);
  options.node = given.node;
  auto cache = value_or_exit(engine_client::open(options));
  auto max_tokens = std::min(given.max_tokens, static_cast<size_t>(model.shape().context));
  inference_engine engine{std::move(model), *cache, max_tokens};

  std::ofstream logits;
  if (!given.logits.empty())
    logits.open(given.logits, std::ios::binary);
  for (auto& path : given.prompts) {
    request next{.tokens = value_or_exit(words.encode(read_text(path))),
                 .max_new_tokens = max_new_tokens,
                 .end_token = words.end_token(),
                 .logits = given.logits.empty() ? nullptr : &logits};
    print(path, value_or_exit(engine.serve(next)), words);
  }
  if (!given.logits.empty() && !logits.flush())
    throw std::runtime_error{"cannot write " + given.logits};
}

} // namespace

int main(int argc, char** argv) {
  settings given;
  CLI::App app{"A small inference engine with kvasir's KV cache inside"};
  app.add_option("--model", given.model, "GGUF file of a SmolLM2")->required();
  app.add_option("--node", given.node,
                 "kvasird's --engine-socket: share its cache, instead of one in this process");
  app.add_option("--pool-size", given.pool_bytes, "memory of the cache in this process")
    ->transform(CLI::AsSizeValue{false})
    ->capture_default_str();
  app.add_option("--max-tokens", given.max_tokens, "of a prompt and its answer together")
    ->check(CLI::Range(1, 1 << 20))
    ->capture_default_str();
  app.add_option("--logits", given.logits,
                 "file for the logits of the computed prompt tokens, float32");
  app.require_subcommand(1)->fallthrough();
  auto prefill = app.add_subcommand("prefill", "compute prompts and store them in the cache");
  auto decode = app.add_subcommand("decode", "answer prompts with what the cache has of them");
  auto tokens = app.add_subcommand("tokenize", "print the tokens of texts");
  for (auto role : {prefill, decode, tokens})
    role->add_option("PROMPT", given.prompts, "text files, one a request")->required();
  decode->add_option("--tokens", given.new_tokens, "most tokens of an answer")
    ->capture_default_str()
    ->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);

  c10::InferenceMode without_gradients;
  try {
    if (tokens->parsed())
      tokenize(given);
    else
      serve(given, prefill->parsed() ? 0 : given.new_tokens);
  } catch (const std::exception& error) {
    std::cerr << "smollm2_engine: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
