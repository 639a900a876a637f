// What fragmentation costs a cache of mixed object sizes that always runs full. Evicting in the
// policy's order frees blocks all over the pool, while a large object needs one contiguous run.
// Requests follow a Zipf law over keys of fixed size; a miss is stored. No payload memory is
// touched: only the books are measured.
//
// Usage: kvasir_fragmentation_bench [pool MiB = 8192] [requests = 400000] [seed = 1]
// Prints one JSON object per line. Over a long run as many bytes leave a full cache as enter
// it, so `evicted_per_allocated` nears 1 whatever happens; the cost shows in
// `utilisation_mean`, in `burst_*` (bytes evicted for one object that did not fit, per byte of
// it) and in `hit_ratio` against the strategy "no_fragmentation", which only counts bytes.

#include "backends/eviction_policy.hpp"
#include "backends/slot_allocator.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

using kvasir::slot_allocator;
using bench_clock = std::chrono::steady_clock;

namespace {

constexpr uint64_t kib = 1 << 10;
constexpr uint64_t mib = 1 << 20;

/// How an evictor makes room.
enum class strategy {
  no_fragmentation,         ///< Victims until the bytes fit, as if the pool could be compacted.
  policy_order,             ///< Victims until the object fits.
  neighbours,               ///< Each victim, and its neighbours until the run is long enough.
  slack_then_neighbours_16, ///< Neighbours only once 1/16 of the pool is free and does not
                            ///< help.
  slack_then_neighbours_32, ///< The same with 1/32.
};

constexpr std::pair<strategy, const char*> strategies[] = {
  {strategy::no_fragmentation, "no_fragmentation"},
  {strategy::policy_order, "policy_order"},
  {strategy::neighbours, "neighbours"},
  {strategy::slack_then_neighbours_16, "slack_then_neighbours_16"},
  {strategy::slack_then_neighbours_32, "slack_then_neighbours_32"},
};

struct workload {
  const char* name;
  uint64_t (*next_size)(std::mt19937_64&);
};

/// 64 KiB to 32 MiB, each doubling half as frequent as the one before; any length in between.
uint64_t skewed(std::mt19937_64& rng) {
  auto doubling = std::min(std::countr_zero(rng() | (1u << 8)), 8);
  auto low = (64 * kib) << doubling;
  return low + rng() % (low + 1);
}

/// Three object sizes side by side: the small ones dominate by count, the large ones by harm.
uint64_t three_models(std::mt19937_64& rng) {
  auto dice = rng() % 100;
  return dice < 80 ? 256 * kib : dice < 98 ? 4 * mib + 96 * kib : 32 * mib;
}

/// One model, one chunk size, ragged last chunks.
uint64_t one_model(std::mt19937_64& rng) {
  return rng() % 16 != 0 ? 8 * mib : 64 * kib + rng() % (8 * mib);
}

constexpr workload workloads[]
  = {{"skewed", skewed}, {"three_models", three_models}, {"one_model", one_model}};

class full_cache {
public:
  full_cache(uint64_t pool_bytes, const char* policy, strategy how)
    : pool_bytes_(pool_bytes),
      allocator_(how == strategy::no_fragmentation ? 8 * pool_bytes : pool_bytes),
      policy_(std::move(*kvasir::make_eviction_policy(policy))),
      how_(how) {
    allocator_.extend(allocator_.capacity_bytes());
  }

  /// @returns whether it was a hit.
  bool get(uint64_t key, uint64_t size_bytes) {
    if (auto found = index_.find(key); found != index_.end()) {
      policy_->touch(found->second);
      return true;
    }
    put(key, size_bytes);
    return false;
  }

  nlohmann::json report() const {
    auto share = [](uint64_t part, uint64_t whole) {
      return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    return {{"evicted_per_allocated", share(evicted_bytes_, allocated_bytes_)},
            {"off_policy_evictions", share(neighbour_bytes_, evicted_bytes_)},
            {"utilisation_mean", samples_ == 0 ? 0 : utilisation_sum_ / samples_},
            {"utilisation_least", utilisation_least_},
            {"burst_mean", bursts_ == 0 ? 0 : burst_sum_ / bursts_},
            {"burst_most", burst_most_}};
  }

private:
  std::optional<slot_allocator::block> allocate(uint64_t size_bytes) {
    if (how_ == strategy::no_fragmentation
        && allocator_.used_bytes() + slot_allocator::rounded_bytes(size_bytes) > pool_bytes_)
      return std::nullopt;
    return allocator_.allocate(size_bytes);
  }

  void put(uint64_t key, uint64_t size_bytes) {
    auto b = allocate(size_bytes);
    if (!b) {
      auto before_bytes = evicted_bytes_;
      while (!(b = allocate(size_bytes)))
        make_room(size_bytes);
      auto burst = static_cast<double>(evicted_bytes_ - before_bytes)
                   / static_cast<double>(b->size_bytes);
      ++bursts_;
      burst_sum_ += burst;
      burst_most_ = std::max(burst_most_, burst);
    }
    // The handle serves as the object's number.
    policy_->insert(b->handle, b->size_bytes, key * 0x9e3779b97f4a7c15);
    keys_.resize(std::max<size_t>(keys_.size(), b->handle + 1));
    keys_[b->handle] = key;
    index_[key] = b->handle;
    if (bursts_ == 0)
      return; // not full yet
    allocated_bytes_ += b->size_bytes;
    auto utilisation
      = static_cast<double>(allocator_.used_bytes()) / static_cast<double>(pool_bytes_);
    utilisation_sum_ += utilisation;
    utilisation_least_ = std::min(utilisation_least_, utilisation);
    ++samples_;
  }

  void make_room(uint64_t size_bytes) {
    auto id = policy_->victim([](uint32_t) { return false; }).value();
    auto slack = how_ == strategy::slack_then_neighbours_16   ? pool_bytes_ / 16
                 : how_ == strategy::slack_then_neighbours_32 ? pool_bytes_ / 32
                                                              : 0;
    auto free_bytes = pool_bytes_ - std::min(pool_bytes_, allocator_.used_bytes());
    if (how_ < strategy::neighbours || free_bytes < slack)
      return evict(id);
    auto needed = slot_allocator::rounded_bytes(size_bytes);
    for (;;) {
      auto after = allocator_.used_after(id);
      auto before = allocator_.used_before(id);
      evict(id);
      if (allocator_.largest_free_bytes() >= needed || (!after && !before))
        return;
      // The cheaper side first.
      id = !after                                                                  ? *before
           : !before                                                               ? *after
           : allocator_.at(*after).size_bytes <= allocator_.at(*before).size_bytes ? *after
                                                                                   : *before;
      policy_->remove(id);
      neighbour_bytes_ += allocator_.at(id).size_bytes;
    }
  }

  void evict(uint32_t id) {
    evicted_bytes_ += allocator_.at(id).size_bytes;
    index_.erase(keys_[id]);
    allocator_.free(id);
  }

  uint64_t pool_bytes_;
  slot_allocator allocator_;
  std::unique_ptr<kvasir::eviction_policy> policy_;
  strategy how_;
  std::unordered_map<uint64_t, uint32_t> index_;
  std::vector<uint64_t> keys_; // by object number
  uint64_t evicted_bytes_ = 0;
  uint64_t neighbour_bytes_ = 0;
  uint64_t allocated_bytes_ = 0;
  double utilisation_sum_ = 0;
  double utilisation_least_ = 1;
  double samples_ = 0;
  double bursts_ = 0;
  double burst_sum_ = 0;
  double burst_most_ = 0;
};

void run(const workload& load, const char* policy, std::pair<strategy, const char*> how,
         uint64_t pool_bytes, uint64_t count, uint64_t seed) {
  std::mt19937_64 rng{seed};
  std::vector<uint64_t> sizes; // of keys; ten times the pool in all
  for (uint64_t total = 0; total < 10 * pool_bytes; total += sizes.back())
    sizes.push_back(load.next_size(rng));
  full_cache cache{pool_bytes, policy, how.first};
  uint64_t hits = 0;
  std::uniform_real_distribution<double> exponent{0, 1};
  auto start = bench_clock::now();
  for (uint64_t i = 0; i < count; ++i) {
    // Zipf with exponent 1: the logarithm of the rank is uniform.
    auto rank = std::pow(static_cast<double>(sizes.size()), exponent(rng)) - 1;
    auto key = std::min(static_cast<size_t>(rank), sizes.size() - 1);
    hits += cache.get(key, sizes[key]);
  }
  std::chrono::duration<double> elapsed = bench_clock::now() - start;
  auto line = cache.report();
  line["bench"] = "fragmentation";
  line["workload"] = load.name;
  line["policy"] = policy;
  line["strategy"] = how.second;
  line["pool_bytes"] = pool_bytes;
  line["requests"] = count;
  line["seed"] = seed;
  line["hit_ratio"] = static_cast<double>(hits) / static_cast<double>(count);
  line["allocations_per_second"] = static_cast<double>(count - hits) / elapsed.count();
  std::cout << line << '\n';
}

/// The allocator alone: blocks freed and taken in random order, half the pool in use.
void run_alone(uint64_t count, uint64_t seed) {
  constexpr uint64_t pool_bytes = 256ull << 30;
  std::mt19937_64 rng{seed};
  slot_allocator uut{pool_bytes};
  uut.extend(pool_bytes);
  std::vector<uint32_t> handles;
  std::vector<uint64_t> sizes(1 << 16);
  std::vector<uint32_t> picks(1 << 16);
  for (auto& s : sizes)
    s = skewed(rng);
  for (auto& p : picks)
    p = static_cast<uint32_t>(rng());
  while (uut.used_bytes() < pool_bytes / 2)
    handles.push_back(uut.allocate(sizes[handles.size() % sizes.size()])->handle);
  auto start = bench_clock::now();
  uint64_t failed = 0;
  for (uint64_t i = 0; i < count; ++i) {
    auto& handle = handles[picks[i % picks.size()] % handles.size()];
    uut.free(handle);
    auto b = uut.allocate(sizes[(i * 7) % sizes.size()]);
    if (!b) {
      ++failed;
      b = uut.allocate(1);
    }
    handle = b->handle;
  }
  std::chrono::duration<double, std::nano> elapsed = bench_clock::now() - start;
  std::cout << nlohmann::json{{"bench", "allocate_free"},
                              {"blocks", handles.size()},
                              {"failed", failed},
                              {"ns_per_allocate_and_free",
                               elapsed.count() / static_cast<double>(count)}}
            << '\n';
}

uint64_t argument(int argc, char** argv, int index, uint64_t otherwise) {
  return index < argc ? std::strtoull(argv[index], nullptr, 10) : otherwise;
}

} // namespace

int main(int argc, char** argv) {
  auto pool_bytes = argument(argc, argv, 1, 8192) * mib;
  auto count = argument(argc, argv, 2, 400000);
  auto seed = argument(argc, argv, 3, 1);
  if (pool_bytes < 64 * mib || count == 0) {
    std::cerr << "a pool of at least 64 MiB and one allocation are needed\n";
    return 2;
  }
  for (const auto& load : workloads) {
    for (auto policy : {"lru", "s3fifo"}) {
      for (auto how : strategies)
        run(load, policy, how, pool_bytes, count, seed);
    }
  }
  run_alone(4000000, seed);
}
