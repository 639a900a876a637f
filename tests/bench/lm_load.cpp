#include "load_options.hpp"
#include "load_worker.hpp"
#include "usage_window.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <thread>

namespace kvasir::bench {

namespace {

using json = nlohmann::ordered_json;

/// Connections that have asked once, so that the server surely serves them, and stay open.
std::vector<std::unique_ptr<cache_client>> open_idle_connections(const load_options& options) {
  std::vector<std::unique_ptr<cache_client>> result;
  const std::vector<std::string> key{make_key("bench/idle", 0)};
  for (std::size_t i = 0; i < options.idle_count; ++i) {
    result.push_back(connect_client(options.client));
    result.back()->exist(key);
  }
  return result;
}

int run_load(const load_options& options) {
  auto idle = open_idle_connections(options);
  load_run run{options, std::random_device{}() * std::uint64_t{0x100000001} + 1};
  std::vector<std::unique_ptr<load_worker>> workers;
  for (std::size_t i = 0; i < options.connection_count; ++i)
    workers.push_back(std::make_unique<load_worker>(run, i));
  std::vector<std::jthread> threads;
  threads.reserve(workers.size());
  for (auto& worker : workers)
    threads.emplace_back([&worker] { (*worker)(); });
  run.preloaded.wait();
  run.phase = load_phase::warm_up;
  run.phase.notify_all();
  std::this_thread::sleep_for(options.warm_up);
  usage_window window{options.server_pid};
  run.phase = load_phase::measured;
  std::this_thread::sleep_for(options.measured);
  run.measured.wait(); // A busy machine may have let none of them run until now.
  run.phase = load_phase::done;
  window.close();
  threads.clear(); // joins

  latency_histogram latencies;
  std::uint64_t bad_count = 0;
  for (const auto& worker : workers) {
    latencies.merge(worker->latencies());
    bad_count += worker->bad_count();
  }
  auto batches_per_s = static_cast<double>(latencies.count()) / window.elapsed_s();
  json report;
  report["size_bytes"] = options.value_size;
  report["connections"] = options.connection_count;
  report["idle_connections"] = options.idle_count;
  report["depth"] = options.depth;
  report["split"] = options.client.split_sends;
  report["keys"] = options.key_count() * options.connection_count;
  report["ops"] = latencies.count() * options.depth;
  report["ops_per_s"] = rounded(batches_per_s * static_cast<double>(options.depth), 10);
  report["mb_per_s"]
    = options.what == operation::exist
        ? json(nullptr)
        : json(rounded(batches_per_s * static_cast<double>(options.value_size) / 1e6, 10));
  report["p50_us"] = microseconds(latencies.quantile(0.5));
  report["p99_us"] = microseconds(latencies.quantile(0.99));
  report["max_us"] = microseconds(latencies.max());
  window.report(report);
  report["bad"] = bad_count;
  std::cout << report.dump() << '\n';
  return bad_count == 0 ? 0 : 3;
}

int run_fill(const load_options& options) {
  auto client = connect_client(options.client);
  usage_window window{options.server_pid};
  constexpr std::size_t batch_count = 256;
  const std::vector<char> value(options.value_size, 'f');
  std::vector<std::string> keys;
  std::size_t kept = 0;
  // First all are stored, then all are asked for: the second pass finds what was dropped.
  for (bool storing : {true, false}) {
    for (std::size_t first = 0; first < options.object_count; first += batch_count) {
      keys.clear();
      for (auto i = first; i < std::min(first + batch_count, options.object_count); ++i)
        keys.push_back(make_key("bench/fill", i));
      if (storing)
        client->put_all(keys, value);
      else
        kept += client->exist(keys);
    }
  }
  window.close();
  json report;
  report["size_bytes"] = options.value_size;
  report["objects"] = options.object_count;
  report["kept"] = kept;
  window.report(report);
  std::cout << report.dump() << '\n';
  return 0;
}

} // namespace

} // namespace kvasir::bench

int main(int argc, char** argv) try {
  int exit_code = 0;
  auto options = kvasir::bench::parse_command_line(argc, argv, exit_code);
  if (!options)
    return exit_code;
  if (options->what == kvasir::bench::operation::fill)
    return kvasir::bench::run_fill(*options);
  return kvasir::bench::run_load(*options);
} catch (const std::exception& error) {
  kvasir::bench::give_up(error.what());
}
