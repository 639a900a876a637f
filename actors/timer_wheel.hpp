// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace kvasir {

/// A deadline that is armed in one `timer_wheel`. Disarms itself when it dies.
///
/// Threading: belongs to the wheel's thread.
class wheel_timer {
public:
  wheel_timer() = default;
  wheel_timer(const wheel_timer&) = delete;
  wheel_timer& operator=(const wheel_timer&) = delete;
  virtual ~wheel_timer() { unlink(); }

  bool armed() const noexcept { return next_ != nullptr; }

private:
  friend class timer_wheel;

  /// The deadline passed; the timer is disarmed already and may be armed again.
  virtual void on_timer() = 0;

  void unlink() noexcept;

  wheel_timer* next_ = nullptr;
  wheel_timer* prev_ = nullptr;
  size_t* armed_count_ = nullptr;
  uint64_t expiry_tick_ = 0;
};

/// Deadlines at a resolution of 100 ms: arm and disarm are a few pointer writes, never early.
///
/// Threading: not thread-safe; belongs to one I/O unit. Takes no clock: its owner tells it the
/// time, which also lets a test move it.
class timer_wheel {
public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds resolution{100};

  explicit timer_wheel(clock::time_point now);
  timer_wheel(const timer_wheel&) = delete;
  timer_wheel& operator=(const timer_wheel&) = delete;
  ~timer_wheel();

  /// (Re)arms `timer` to fire at the first `advance` past `when`, rounded up to a tick: never
  /// early, up to `resolution` late. A time in the past means the next tick.
  void arm(wheel_timer& timer, clock::time_point when);

  void disarm(wheel_timer& timer) noexcept { timer.unlink(); }

  /// Fires what is due. Timers may arm and disarm any timer from `on_timer`.
  void advance(clock::time_point now);

  size_t armed() const noexcept { return armed_; }

  /// When `advance` should be called next; meaningless while nothing is armed.
  clock::time_point next_tick() const noexcept;

private:
  struct sentinel final : wheel_timer {
    sentinel() noexcept;
    void on_timer() override {}
  };

  static constexpr size_t num_spokes = 512; // One turn is 51.2 s.

  uint64_t tick_at(clock::time_point when) const noexcept;

  clock::time_point start_;
  uint64_t tick_ = 0;
  size_t armed_ = 0;
  std::array<sentinel, num_spokes> spokes_;
};

} // namespace kvasir
