#include "load_worker.hpp"

#include <array>
#include <charconv>

namespace kvasir::bench {

namespace {

using clock = std::chrono::steady_clock;

static_assert(sizeof(value_stamp) <= min_value_size / 2
                && min_value_size / 2 < min_value_size - sizeof(value_stamp),
              "the middle byte lies between the stamps");

} // namespace

std::string make_key(const std::string& model, std::uint64_t index) {
  // Multiplying by an odd number permutes the 64-bit integers: no two indexes collide.
  auto hash = (index + 1) * 0x9e3779b97f4a7c15U;
  std::array<char, 16> digits;
  auto end = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16).ptr;
  return model + "@1@0@" + std::string{digits.data(), end} + "@uint8";
}

load_worker::load_worker(load_run& run, std::size_t connection_index)
  : run_(run),
    connection_index_(static_cast<std::uint32_t>(connection_index)),
    client_(connect_client(run.options.client)),
    key_count_(run.options.key_count()),
    versions_(key_count_, 0),
    outgoing_(run.options.value_size, static_cast<char>('a' + connection_index % 26)),
    incoming_(run.options.value_size) {
  auto model = "bench/model-" + std::to_string(connection_index);
  for (std::size_t i = 0; i < key_count_ + run.options.depth; ++i)
    keys_.push_back(make_key(model, i % key_count_));
}

void load_worker::operator()() {
  preload();
  run_.preloaded.count_down();
  run_.phase.wait(load_phase::preload);
  for (std::size_t i = 0;; i = (i + 1) % key_count_) {
    auto start = clock::now();
    operate(i);
    auto end = clock::now();
    auto phase = run_.phase.load(std::memory_order_relaxed);
    if (phase == load_phase::measured) {
      latencies_.record(end - start);
      if (latencies_.count() == 1)
        run_.measured.count_down();
    } else if (phase == load_phase::done) {
      break;
    }
  }
  if (run_.options.what == operation::put && run_.options.check == verification::content)
    for (std::size_t i = 0; i < key_count_; ++i)
      get(i);
}

void load_worker::preload() {
  for (std::size_t i = 0; i < key_count_; ++i)
    put(i);
}

void load_worker::operate(std::size_t key_index) {
  switch (run_.options.what) {
    case operation::put:
      return put(key_index);
    case operation::get:
      return get(key_index);
    case operation::exist:
      return exist(key_index);
    case operation::fill:
      return; // has no loop; see run_fill
  }
}

void load_worker::put(std::size_t key_index) {
  ++versions_[key_index];
  stamp(key_index);
  if (!client_->put(keys_[key_index], outgoing_))
    ++bad_count_;
}

void load_worker::get(std::size_t key_index) {
  auto good = client_->get(keys_[key_index], incoming_)
              && (run_.options.check == verification::length || is_expected(key_index));
  if (!good)
    ++bad_count_;
}

void load_worker::exist(std::size_t key_index) {
  auto depth = run_.options.depth;
  // A depth beyond the key count asks for some keys twice: `keys_` has them again at its end.
  auto found = client_->exist(std::span{keys_}.subspan(key_index, depth));
  bad_count_ += depth - found;
}

void load_worker::stamp(std::size_t key_index) {
  stamp_of(key_index).write_to(outgoing_);
}

bool load_worker::is_expected(std::size_t key_index) const {
  auto middle = incoming_.size() / 2;
  return stamp_of(key_index).is_in(incoming_) && incoming_[middle] == outgoing_[middle];
}

value_stamp load_worker::stamp_of(std::size_t key_index) const {
  return {run_.nonce, connection_index_, static_cast<std::uint32_t>(key_index),
          versions_[key_index]};
}

} // namespace kvasir::bench
