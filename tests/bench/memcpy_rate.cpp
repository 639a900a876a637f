// The rate at which one thread copies blocks of a size, rotating through 256 MiB so that they
// come from memory and not from a cache. One JSON object on standard output.

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

int main(int argc, char** argv) try {
  using clock = std::chrono::steady_clock;
  constexpr std::size_t total_size = std::size_t{256} << 20;
  std::size_t block_size = std::size_t{1} << 20;
  double measured_s = 1.0;
  CLI::App app{"Measures memcpy, one thread, rotating through 256 MiB."};
  app.add_option("--size", block_size, "Block size, e.g. 64KiB")
    ->transform(CLI::AsSizeValue(false))
    ->check(CLI::Range(std::size_t{1}, total_size / 2));
  app.add_option("--secs", measured_s, "Seconds measured")->check(CLI::Range(0.01, 600.0));
  CLI11_PARSE(app, argc, argv);

  const auto block_count = total_size / block_size;
  const std::vector<char> from(block_count * block_size, 1);
  std::vector<char> to(block_count * block_size, 2);
  std::size_t copied_count = 0;
  const auto start = clock::now();
  std::chrono::duration<double> elapsed{};
  do {
    // The two sides walk with different strides, so that no pair of blocks is special.
    for (int i = 0; i < 4; ++i, ++copied_count)
      std::memcpy(to.data() + copied_count % block_count * block_size,
                  from.data() + copied_count * 7 % block_count * block_size, block_size);
    elapsed = clock::now() - start;
  } while (elapsed.count() < measured_s);
  const auto bytes = static_cast<double>(copied_count) * static_cast<double>(block_size);
  std::printf("{\"size_bytes\": %zu, \"gb_per_s\": %.3f}\n", block_size,
              bytes / elapsed.count() / 1e9);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
