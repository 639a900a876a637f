#include "latency_histogram.hpp"
#include "load_phase.hpp"
#include "mp_operations.hpp"
#include "usage_window.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <latch>
#include <map>
#include <memory>
#include <random>
#include <thread>

namespace kvasir::bench {

namespace {

using clock = std::chrono::steady_clock;
using json = nlohmann::ordered_json;

/// All chunks of one run together never exceed this.
constexpr std::size_t max_run_bytes = std::size_t{512} << 20;

enum class transfer { any, shm, inline_data };

struct mp_load_options {
  endpoint server;
  mp_task task;
  transfer how = transfer::any;
  std::size_t chunk_bytes = std::size_t{32} << 20;
  std::size_t client_count = 1;
  double warm_up_s = 0.2;
  double measured_s = 1.0;
  std::int64_t timeout_s = 60;
  pid_t server_pid = 0;

  bool counts_bytes() const {
    return task.what == mp_operation::store || task.what == mp_operation::retrieve;
  }
};

struct mp_run {
  explicit mp_run(const mp_load_options& chosen)
    : options(chosen),
      preloaded(static_cast<std::ptrdiff_t>(chosen.client_count)),
      measured(static_cast<std::ptrdiff_t>(chosen.client_count)),
      ended(static_cast<std::ptrdiff_t>(chosen.client_count)) {}

  const mp_load_options& options;
  zmq::context_t context;
  std::latch preloaded;
  std::latch measured; ///< Every client ended a round in the measured phase.
  std::latch ended; ///< The last round of every client is over.
  std::atomic<load_phase> phase = load_phase::preload;
};

/// One client under load. A round counts when it *ends* in the measured phase, so that those
/// that straddle its two edges cancel out.
class mp_load_worker {
public:
  mp_load_worker(mp_run& run, std::size_t client_index)
    : run_(run),
      client_(run.context, run.options.server, std::chrono::seconds{run.options.timeout_s}),
      task_(client_, task_of(run.options, client_index)) {}

  void operator()() {
    task_.preload();
    if (run_.options.how != transfer::any
        && client_.uses_segment() != (run_.options.how == transfer::shm))
      give_up("the server does not transfer chunks in that way");
    run_.preloaded.count_down();
    run_.phase.wait(load_phase::preload);
    for (std::size_t round = 0;; ++round) {
      task_.before(round);
      auto start = clock::now();
      task_.timed(round);
      auto end = clock::now();
      task_.after(round);
      auto phase = run_.phase.load(std::memory_order_relaxed);
      if (phase == load_phase::measured) {
        latencies_.record(end - start);
        busy_ += end - start;
        if (latencies_.count() == 1)
          run_.measured.count_down();
      } else if (phase == load_phase::done) {
        break;
      }
    }
    run_.ended.arrive_and_wait();
    if (run_.options.task.verify)
      task_.verify();
  }

  const latency_histogram& latencies() const { return latencies_; }
  std::uint64_t bad_count() const { return task_.bad_count(); }

  /// Rounds a second of the time in which the client was not making ready for the next one.
  double rate() const {
    auto busy_s = std::chrono::duration<double>(busy_).count();
    return busy_s > 0 ? static_cast<double>(latencies_.count()) / busy_s : 0;
  }

private:
  static mp_task task_of(const mp_load_options& options, std::size_t client_index) {
    auto result = options.task;
    result.client_index = static_cast<std::uint32_t>(client_index);
    return result;
  }

  mp_run& run_;
  mp_client client_;
  mp_worker_task task_;
  latency_histogram latencies_;
  std::chrono::nanoseconds busy_{0};
};

json make_report(const mp_load_options& options,
                 const std::vector<std::unique_ptr<mp_load_worker>>& workers,
                 const usage_window& window) {
  latency_histogram latencies;
  std::uint64_t bad_count = 0;
  double rate = 0;
  for (const auto& worker : workers) {
    latencies.merge(worker->latencies());
    bad_count += worker->bad_count();
    rate += worker->rate();
  }
  json report;
  report["chunk_bytes"] = options.chunk_bytes;
  report["tokens"] = options.task.what == mp_operation::miss ? options.task.token_count
                                                             : options.task.shape.chunk_tokens;
  report["clients"] = options.client_count;
  report["keys"] = options.task.key_count * options.client_count;
  report["ops"] = latencies.count();
  report["ops_per_s"] = rounded(rate, 10);
  report["mb_per_s"]
    = options.counts_bytes()
        ? json(rounded(rate * static_cast<double>(options.chunk_bytes) / 1e6, 10))
        : json(nullptr);
  report["p50_us"] = microseconds(latencies.quantile(0.5));
  report["p99_us"] = microseconds(latencies.quantile(0.99));
  report["max_us"] = microseconds(latencies.max());
  window.report(report);
  report["bad"] = bad_count;
  return report;
}

int run_load(mp_load_options options) {
  mp_run run{options};
  if (options.task.verify) {
    mp_client asking{run.context, options.server, std::chrono::seconds{options.timeout_s}};
    options.task.shape.chunk_tokens = asking.chunk_tokens();
  }
  auto& shape = options.task.shape;
  shape.hidden = options.chunk_bytes / (4 * mp::layout::layers * shape.chunk_tokens);
  if (shape.hidden == 0 || shape.chunk_bytes() != options.chunk_bytes)
    give_up("--size is no multiple of 128 bytes for each token of a chunk");
  std::vector<std::unique_ptr<mp_load_worker>> workers;
  for (std::size_t i = 0; i < options.client_count; ++i)
    workers.push_back(std::make_unique<mp_load_worker>(run, i));
  std::vector<std::jthread> threads;
  threads.reserve(workers.size());
  for (auto& worker : workers)
    threads.emplace_back([&worker] { (*worker)(); });
  run.preloaded.wait();
  run.phase = load_phase::warm_up;
  run.phase.notify_all();
  std::this_thread::sleep_for(std::chrono::duration<double>{options.warm_up_s});
  usage_window window{options.server_pid};
  run.phase = load_phase::measured;
  std::this_thread::sleep_for(std::chrono::duration<double>{options.measured_s});
  run.measured.wait(); // A busy machine may have let none of them run until now.
  run.phase = load_phase::done;
  window.close();
  threads.clear(); // joins
  auto report = make_report(options, workers, window);
  std::cout << report.dump() << '\n';
  return report["bad"] == 0 ? 0 : 3;
}

constexpr auto description
  = "Loads an MP server over ZeroMQ, one blocking client per thread, and prints one JSON "
    "object.\nExit code: 0, 1 for wrong options, 2 when the server was lost, 3 when an answer "
    "was wrong.";

/// @returns none after printing help or a complaint; `exit_code` then says which.
std::optional<mp_load_options> parse(int argc, char** argv, int& exit_code) {
  mp_load_options result;
  auto echo = false;
  CLI::App app{description};
  app.add_option("--host", result.server.host, "Numeric IPv4 address");
  app.add_option("--port", result.server.port, "Port")->required();
  app.add_option("--op", result.task.what, "ping, miss, hit, store or retrieve")
    ->required()
    ->transform(CLI::CheckedTransformer(
      std::map<std::string, mp_operation>{{"ping", mp_operation::ping},
                                          {"miss", mp_operation::miss},
                                          {"hit", mp_operation::hit},
                                          {"store", mp_operation::store},
                                          {"retrieve", mp_operation::retrieve}}));
  app.add_option("--transfer", result.how, "How chunks must travel: shm or inline")
    ->transform(CLI::CheckedTransformer(std::map<std::string, transfer>{
      {"shm", transfer::shm}, {"inline", transfer::inline_data}}));
  app.add_option("--tokens", result.task.token_count, "Tokens of a prompt that is not stored")
    ->check(CLI::Range(1, 1 << 24));
  app.add_option("--size", result.chunk_bytes, "Bytes of a chunk, e.g. 32MiB")
    ->transform(CLI::AsSizeValue(false))
    ->check(CLI::Range(std::size_t{1}, max_run_bytes));
  app.add_option("--clients", result.client_count, "Clients, each a thread with a socket")
    ->check(CLI::Range(1, 256));
  app.add_option("--keys", result.task.key_count, "Prompts of a client, fewer above 512 MiB")
    ->check(CLI::Range(1, 1024));
  app.add_flag("--first-touch", result.task.first_touch,
               "Each transfer is the first to touch its pages of the segment");
  app.add_flag("--echo", echo, "The server only echoes: ask nothing else, verify nothing");
  app.add_option("--warmup", result.warm_up_s, "Seconds of load before the measurement")
    ->check(CLI::Range(0.0, 60.0));
  app.add_option("--secs", result.measured_s, "Seconds measured")
    ->check(CLI::Range(0.01, 3600.0));
  app.add_option("--timeout", result.timeout_s, "Seconds after which a server is given up")
    ->check(CLI::Range(1, 3600));
  app.add_option("--server-pid", result.server_pid, "Reports the CPU time of this process too");
  try {
    app.parse(argc, argv);
    if (echo && result.counts_bytes())
      throw CLI::ValidationError("--echo has no chunks to store or retrieve");
    if (result.chunk_bytes * result.client_count > max_run_bytes)
      throw CLI::ValidationError("--size times --clients must not exceed 512 MiB");
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 1;
    return std::nullopt;
  }
  result.task.verify = !echo;
  result.task.nonce = std::random_device{}();
  result.task.key_count = std::clamp<std::size_t>(
    max_run_bytes / (result.chunk_bytes * result.client_count), 1, result.task.key_count);
  return result;
}

} // namespace

} // namespace kvasir::bench

int main(int argc, char** argv) try {
  int exit_code = 0;
  auto options = kvasir::bench::parse(argc, argv, exit_code);
  return options ? kvasir::bench::run_load(*options) : exit_code;
} catch (const std::exception& error) {
  kvasir::bench::give_up(error.what());
}
