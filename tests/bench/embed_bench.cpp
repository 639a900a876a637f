// Embedded clients beside memcpy, with a cache of their own and joined to a kvasird: interleaved rounds, the
// median of which is printed with its range as a table, and all of which go into a JSON file
// (docs/performance.md).

#include "actors/embedding/engine_client.hpp"
#include "latency_histogram.hpp"
#include "node_process.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
using kvasir::bench::latency_histogram;
using tensors = std::vector<at::Tensor>;

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// What one round of a cell measured.
struct sample {
  double rate = 0; ///< Operations or GB a second.
  double p50_us = 0;
  double p99_us = 0;
};

struct cell {
  std::string name;
  std::string unit;
  std::function<sample(double secs)> run;
};

/// Runs `op(i)` for so long. @param scale what one of them counts for in the rate
sample repeat(double secs, double scale, const std::function<void(uint64_t)>& op) {
  latency_histogram latencies;
  const auto start = clock_type::now();
  auto last = start;
  uint64_t i = 0;
  do {
    op(i++);
    const auto now = clock_type::now();
    latencies.record(now - last);
    last = now;
  } while (seconds_since(start) < secs);
  auto us = [&](double q) {
    return static_cast<double>(latencies.quantile(q).count()) / 1e3;
  };
  return {static_cast<double>(latencies.count()) * scale / seconds_since(start), us(0.5),
          us(0.99)};
}

template <class T>
T must(caf::expected<T> got) {
  if (!got)
    throw std::runtime_error(to_string(got.error()));
  return std::move(*got);
}

/// @param node a kvasird's socket, or empty
std::unique_ptr<kvasir::engine_client> open(uint32_t layers, uint32_t slots, uint32_t hidden,
                                            bool verify, const std::string& node) {
  kvasir::engine_options options;
  options.node = node;
  options.model = "bench";
  options.layout = {kvasir::tensor_dtype::bfloat16, false, layers, slots, hidden, slots};
  options.pool_bytes = 1ull << 30;
  options.verify_loads = verify;
  auto client = must(kvasir::engine_client::open(options));
  for (;;) { // Until the whole pool is faulted in: what is measured is a warm one.
    const auto status = must(client->status().get());
    if (status.usable_bytes == status.capacity_bytes)
      return client;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

at::Tensor chunk_of(const kvasir::engine_client& client) {
  std::vector<int64_t> sizes;
  for (auto size : client.options().layout.shape().dims())
    sizes.push_back(static_cast<int64_t>(size));
  return at::full(sizes, 1.0, at::kBFloat16);
}

kvasir::prompt prompt_of(const kvasir::engine_client& client, uint64_t which, size_t chunks) {
  std::vector<uint32_t> tokens(chunks * client.options().layout.slots);
  std::iota(tokens.begin(), tokens.end(), 0U);
  tokens[0] = static_cast<uint32_t>(which);
  return client.make_prompt(tokens);
}

/// Hits of small chunks: what one costs beside its bytes.
class hits {
public:
  static constexpr size_t num_prompts = 256;
  static constexpr size_t chunks = 8;

  explicit hits(const std::string& node) : client_(open(4, 16, 256, true, node)) { // 64 KiB
    const tensors kv(chunks, chunk_of(*client_));
    for (size_t i = 0; i < num_prompts; ++i) {
      prompts_.push_back(prompt_of(*client_, i, chunks));
      first_chunks_.push_back(prompt_of(*client_, i, 1));
      if (must(client_->store(prompts_.back(), kv).get()).resident != chunks)
        throw std::runtime_error("the pool has no room");
    }
  }

  sample lookup(double secs, const std::vector<kvasir::prompt>& prompts, size_t expected) {
    return repeat(secs, 1, [&](uint64_t i) {
      if (must(client_->lookup(prompts[i % num_prompts]).get()).chunks() != expected)
        throw std::runtime_error("a miss");
    });
  }
  sample one(double secs) { return lookup(secs, first_chunks_, 1); }
  sample eight(double secs) { return lookup(secs, prompts_, chunks); }

  sample from_tokens(double secs) {
    std::vector<uint32_t> tokens(client_->options().layout.slots * chunks);
    std::iota(tokens.begin(), tokens.end(), 0U);
    return repeat(secs, 1, [&](uint64_t i) {
      tokens[0] = static_cast<uint32_t>(i % num_prompts);
      if (must(client_->lookup(tokens).get()).chunks() != chunks)
        throw std::runtime_error("a miss");
    });
  }

  sample views(double secs) {
    return repeat(secs, 1, [&](uint64_t i) {
      if (must(client_->view(prompts_[i % num_prompts]).get()).size() != chunks)
        throw std::runtime_error("a miss");
    });
  }

  sample load(double secs) {
    const tensors into(1, chunk_of(*client_));
    return repeat(secs, 1, [&](uint64_t i) {
      if (must(client_->load(first_chunks_[i % num_prompts], into).get()).chunks != 1)
        throw std::runtime_error("a miss");
    });
  }

  sample threads(double secs, unsigned count) {
    std::vector<sample> each(count);
    {
      std::vector<std::jthread> running;
      for (auto& result : each)
        running.emplace_back([&] { result = one(secs); });
    }
    sample sum;
    for (auto& result : each) {
      sum.rate += result.rate;
      sum.p50_us = std::max(sum.p50_us, result.p50_us);
      sum.p99_us = std::max(sum.p99_us, result.p99_us);
    }
    return sum;
  }

private:
  std::unique_ptr<kvasir::engine_client> client_;
  std::vector<kvasir::prompt> prompts_;
  std::vector<kvasir::prompt> first_chunks_;
};

/// Copies of chunks of 32 MiB, of which nothing is in a cache.
class copies {
public:
  static constexpr double chunk_gb = (32 << 20) / 1e9;
  static constexpr size_t num_tensors = 8;

  explicit copies(bool verify, const std::string& node = {})
    : client_(open(32, 256, 1024, verify, node)) {
    for (size_t i = 0; i < num_tensors; ++i) {
      tensors_.push_back(chunk_of(*client_));
      prompts_.push_back(prompt_of(*client_, i, 1));
    }
    for (size_t i = 0; i < 40; ++i) // The pool is full, and all of it touched.
      must(client_->store(prompt_of(*client_, 1000 + i, 1), {tensors_[i % num_tensors]}).get());
    for (size_t i = 0; i < num_tensors; ++i)
      must(client_->store(prompts_[i], {tensors_[i]}).get());
  }

  sample memcpy_rate(double secs) {
    return repeat(secs, chunk_gb, [&](uint64_t i) {
      std::memcpy(tensors_[(i + 3) % num_tensors].mutable_data_ptr(),
                  tensors_[i % num_tensors].const_data_ptr(), 32 << 20);
    });
  }

  sample store(double secs) {
    return repeat(secs, chunk_gb, [&](uint64_t i) {
      auto prompt = prompt_of(*client_, 2000 + next_++, 1);
      if (must(client_->store(prompt, {tensors_[i % num_tensors]}).get()).stored != 1)
        throw std::runtime_error("not stored");
    });
  }

  sample load(double secs) {
    // Stores of the round before may have pushed them out.
    for (size_t i = 0; i < num_tensors; ++i)
      must(client_->store(prompts_[i], {tensors_[i]}).get());
    return repeat(secs, chunk_gb, [&](uint64_t i) {
      if (must(
            client_->load(prompts_[i % num_tensors], {tensors_[(i + 3) % num_tensors]}).get())
            .chunks
          != 1)
        throw std::runtime_error("a miss");
    });
  }

private:
  std::unique_ptr<kvasir::engine_client> client_;
  std::vector<kvasir::prompt> prompts_;
  tensors tensors_;
  uint64_t next_ = 0;
};

std::string median_text(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  char text[96];
  std::snprintf(text, sizeof(text), "**%.3g** [%.3g–%.3g]", values[values.size() / 2],
                values.front(), values.back());
  return text;
}

} // namespace

int main(int argc, char** argv) try {
  int rounds = 7;
  double secs = 0.5;
  bool quick = false;
  std::string out;
  std::string kvasird;
  CLI::App app{"Measures embedded clients beside memcpy."};
  app.add_option("--rounds", rounds, "Interleaved rounds")->check(CLI::Range(1, 1000));
  app.add_option("--secs", secs, "Seconds a cell and round")->check(CLI::Range(0.01, 60.0));
  app.add_flag("--quick", quick, "2 rounds of 0.05 s: only checks that all runs");
  app.add_option("--kvasird", kvasird, "The program that the joined clients join")->required();
  app.add_option("--out", out, "Where all samples go, as JSON");
  CLI11_PARSE(app, argc, argv);
  if (quick) {
    rounds = 2;
    secs = 0.05;
  }

  const kvasir::bench::node_process small_node{kvasird, 16};
  const kvasir::bench::node_process large_node{kvasird, 256};
  hits small{{}};
  hits joined{small_node.socket()};
  copies verified{true};
  copies unverified{false};
  copies shared{true, large_node.socket()};
  const auto cores = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<cell> cells{{"memcpy, 32 MiB", "GB/s", [&](double s) {
                             return verified.memcpy_rate(s);
                           }}};
  auto add = [&](const std::string& name, const char* unit, std::function<sample(double)> run) {
    cells.push_back({name, unit, std::move(run)});
  };
  auto add_modes = [&](const std::string& name, sample (hits::*run)(double)) {
    add(name, "op/s", [&, run](double s) { return (small.*run)(s); });
    add(name + ", joined", "op/s", [&, run](double s) { return (joined.*run)(s); });
  };
  add_modes("lookup, 1 chunk", &hits::one);
  add_modes("lookup, 8 chunks", &hits::eight);
  add_modes("lookup, 8 chunks, hashed each time", &hits::from_tokens);
  add_modes("view, 8 chunks", &hits::views);
  add_modes("load, 64 KiB", &hits::load);
  const std::string on_all_cores = "lookup, 1 chunk, a thread per core";
  add(on_all_cores, "op/s", [&](double s) { return small.threads(s, cores); });
  add(on_all_cores + ", joined", "op/s", [&](double s) { return joined.threads(s, cores); });
  add("store, 32 MiB", "GB/s", [&](double s) { return verified.store(s); });
  add("store, 32 MiB, joined", "GB/s", [&](double s) { return shared.store(s); });
  add("load, 32 MiB", "GB/s", [&](double s) { return verified.load(s); });
  add("load, 32 MiB, joined", "GB/s", [&](double s) { return shared.load(s); });
  add("load, 32 MiB, not verified", "GB/s", [&](double s) { return unverified.load(s); });
  std::vector<std::vector<sample>> samples(cells.size());
  for (auto round = 0; round < rounds; ++round)
    for (size_t i = 0; i < cells.size(); ++i)
      samples[i].push_back(cells[i].run(secs));

  auto column = [&](size_t i, double sample::*member) {
    std::vector<double> result;
    for (auto& each : samples[i])
      result.push_back(each.*member);
    return result;
  };
  nlohmann::json report{{"rounds", rounds}, {"secs", secs}, {"cores", cores}};
  std::printf("| cell | unit | rate: median [range] | p50 µs | p99 µs | of memcpy |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < cells.size(); ++i) {
    auto rates = column(i, &sample::rate);
    std::string of_memcpy = "–";
    if (cells[i].unit == "GB/s") {
      auto ratios = rates;
      for (size_t r = 0; r < ratios.size(); ++r)
        ratios[r] /= samples[0][r].rate;
      of_memcpy = median_text(ratios);
    }
    std::printf("| %s | %s | %s | %s | %s | %s |\n", cells[i].name.c_str(),
                cells[i].unit.c_str(), median_text(rates).c_str(),
                median_text(column(i, &sample::p50_us)).c_str(),
                median_text(column(i, &sample::p99_us)).c_str(), of_memcpy.c_str());
    report["cells"][cells[i].name] = {{"unit", cells[i].unit},
                                      {"rate", rates},
                                      {"p50_us", column(i, &sample::p50_us)},
                                      {"p99_us", column(i, &sample::p99_us)}};
  }
  if (!out.empty())
    std::ofstream{out} << report.dump(1) << '\n';
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 2;
}
