// What a request costs before anything is looked up: nanoseconds per key and per header, the
// fastest of several rounds. Build in release; no timed test, only a figure for reports.
#include "messages/lm_frame.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

using namespace kvasir;

namespace {

template <class Function>
void measure(const char* what, Function function) {
  constexpr int calls = 1000000;
  double best_ns = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      function();
    const std::chrono::duration<double, std::nano> spent
      = std::chrono::steady_clock::now() - start;
    best_ns = std::min(best_ns, spent.count() / calls);
  }
  std::printf("%-44s %7.1f ns\n", what, best_ns);
}

/// Keeps the compiler from dropping or hoisting the work.
template <class T>
void use(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

lm::client_header_bytes get_of(std::string_view key) {
  return *lm::encode_client_header({lm::command::get, 0, {1, 2, {}}, 0, std::string{key}});
}

} // namespace

int main() {
  struct {
    const char* what;
    std::string_view key;
  } const keys[] = {
    {"chunk key", "meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd5678ef@bfloat16"},
    {"negative hash", "meta-llama/Llama-3.1-8B-Instruct@8@7@-7f3a1234abcd5678@bfloat16"},
    {"layer key", "meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd5678ef@bfloat16@31"},
    {"one tag", "meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd5678ef@bfloat16@user%alice"},
    {"two tags (slow path)", "m@1@0@1234abcd5678ef@bfloat16@user%alice@env%prod"},
    {"leading zeros (slow path)", "meta-llama/Llama-3.1-8B-Instruct@1@0@002a@bfloat16"},
    {"raw (slow path)", "vllm@meta-llama/Llama-3.1-8B-Instruct@1@0@1234abcd5678ef"},
  };
  for (const auto& x : keys) {
    const auto bytes = get_of(x.key);
    const auto field = std::span{bytes}.last<lm::max_key_size>();
    std::printf("%s\n", x.what);
    measure("  canonical_key", [&] {
      use(field);
      use(lm::canonical_key(field));
    });
    measure("  parse_client_header", [&] {
      use(bytes);
      use(lm::parse_client_header(bytes));
    });
  }
  const lm::server_header hit{lm::return_code::success, 4096, {1, 3, {2, 4, 16, 16}}, 0};
  measure("encode_server_header", [&] {
    use(hit);
    use(lm::encode_server_header(hit));
  });
  measure("plain_reply", [] { use(lm::plain_reply(lm::return_code::fail)); });
}
