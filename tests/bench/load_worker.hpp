#pragma once

#include "latency_histogram.hpp"
#include "load_options.hpp"
#include "load_phase.hpp"
#include "value_stamp.hpp"

#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace kvasir::bench {

/// What the main thread and the workers share.
struct load_run {
  load_run(const load_options& chosen, std::uint64_t run_nonce)
    : options(chosen),
      nonce(run_nonce),
      preloaded(static_cast<std::ptrdiff_t>(chosen.connection_count)),
      measured(static_cast<std::ptrdiff_t>(chosen.connection_count)) {}

  const load_options& options;
  std::uint64_t nonce; ///< part of every value, so that one of an earlier run is recognised
  std::latch preloaded;
  std::latch measured; ///< Every connection ended an operation in the measured phase.
  std::atomic<load_phase> phase = load_phase::preload;
};

/// One connection under load:
///
///   store all keys -> (main thread starts) -> operate until told to stop -> read back
///
/// An operation counts when it *ends* in the measured phase, so that those that straddle its
/// two edges cancel out. The read-back after `put` is not timed; it finds bytes that were
/// acknowledged and not kept.
class load_worker {
public:
  /// Connects.
  /// @pre `run` outlives the worker.
  load_worker(load_run& run, std::size_t connection_index);

  /// Runs all phases in the calling thread.
  void operator()();

  // Valid after the call returned.
  const latency_histogram& latencies() const { return latencies_; }
  std::uint64_t bad_count() const { return bad_count_; }

private:
  void preload();
  void operate(std::size_t key_index);
  void put(std::size_t key_index);
  void get(std::size_t key_index);
  void exist(std::size_t key_index);
  void stamp(std::size_t key_index);
  bool is_expected(std::size_t key_index) const;
  value_stamp stamp_of(std::size_t key_index) const;

  load_run& run_;
  std::uint32_t connection_index_;
  std::unique_ptr<cache_client> client_;
  std::size_t key_count_;
  std::vector<std::string>
    keys_; ///< the first `depth` again at the end, for pipelines that wrap
  std::vector<std::uint64_t> versions_; ///< of the value last stored, per key
  std::vector<char> outgoing_;
  std::vector<char> incoming_;
  latency_histogram latencies_;
  std::uint64_t bad_count_ = 0;
};

/// A key of LMCache's grammar; `index` is scattered over all 64-bit hashes.
std::string make_key(const std::string& model, std::uint64_t index);

} // namespace kvasir::bench
