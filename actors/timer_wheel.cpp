#include "actors/timer_wheel.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

void wheel_timer::unlink() noexcept {
  if (next_ == nullptr)
    return;
  next_->prev_ = prev_;
  prev_->next_ = next_;
  next_ = prev_ = nullptr;
  if (armed_count_ != nullptr)
    --*std::exchange(armed_count_, nullptr);
}

timer_wheel::sentinel::sentinel() noexcept {
  next_ = prev_ = this;
}

timer_wheel::timer_wheel(clock::time_point now) : start_(now) {}

timer_wheel::~timer_wheel() {
  for (auto& spoke : spokes_) {
    while (spoke.next_ != &spoke)
      spoke.next_->unlink();
    spoke.next_ = spoke.prev_ = nullptr;
  }
}

uint64_t timer_wheel::tick_at(clock::time_point when) const noexcept {
  return when <= start_ ? 0 : static_cast<uint64_t>((when - start_) / resolution);
}

void timer_wheel::arm(wheel_timer& timer, clock::time_point when) {
  timer.unlink();
  // One tick later than the tick `when` lies in: a timer never fires early.
  timer.expiry_tick_ = std::max(tick_at(when), tick_) + 1;
  auto& spoke = spokes_[timer.expiry_tick_ % num_spokes];
  timer.next_ = &spoke;
  timer.prev_ = spoke.prev_;
  spoke.prev_->next_ = &timer;
  spoke.prev_ = &timer;
  timer.armed_count_ = &armed_;
  ++armed_;
}

void timer_wheel::advance(clock::time_point now) {
  const auto target = tick_at(now);
  if (armed_ == 0) {
    tick_ = target;
    return;
  }
  // After a long pause one turn visits every spoke.
  auto first = target - tick_ > num_spokes ? target - num_spokes : tick_;
  tick_ = target;
  sentinel due;
  for (auto tick = first + 1; tick <= target; ++tick) {
    auto& spoke = spokes_[tick % num_spokes];
    for (wheel_timer* timer = spoke.next_; timer != &spoke;) {
      auto next = timer->next_;
      if (timer->expiry_tick_ <= target) {
        timer->next_->prev_ = timer->prev_;
        timer->prev_->next_ = timer->next_;
        timer->next_ = &due;
        timer->prev_ = due.prev_;
        due.prev_->next_ = timer;
        due.prev_ = timer;
      }
      timer = next;
    }
  }
  // A callback may disarm or destroy any timer, also the next one: always take the first.
  while (due.next_ != &due) {
    auto timer = due.next_;
    timer->unlink();
    timer->on_timer();
  }
  due.next_ = due.prev_ = nullptr;
}

timer_wheel::clock::time_point timer_wheel::next_tick() const noexcept {
  return start_ + (tick_ + 1) * resolution;
}

} // namespace kvasir
