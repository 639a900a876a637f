#include "actors/timer_wheel.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <random>
#include <vector>

using kvasir::timer_wheel;
using kvasir::wheel_timer;
using namespace std::chrono_literals;

namespace {

using time_point = timer_wheel::clock::time_point;

struct probe final : wheel_timer {
  explicit probe(std::function<void()> what = {}) : then(std::move(what)) {}

  int fired = 0;
  std::function<void()> then;

private:
  void on_timer() override {
    ++fired;
    if (then)
      then();
  }
};

const time_point start{1000s};

} // namespace

TEST_CASE("a timer fires once, never early, at most one tick late") {
  for (auto delay : {0ms, 1ms, 99ms, 100ms, 101ms, 51'199ms, 51'200ms, 51'300ms, 200'000ms}) {
    timer_wheel wheel{start};
    probe timer;
    wheel.arm(timer, start + delay);
    CHECK(timer.armed());
    for (auto passed = 0ms; passed < delay; passed += 33ms) {
      wheel.advance(start + passed);
      REQUIRE(timer.fired == 0);
    }
    wheel.advance(start + delay + timer_wheel::resolution);
    CHECK(timer.fired == 1);
    CHECK_FALSE(timer.armed());
    wheel.advance(start + delay + 1h);
    CHECK(timer.fired == 1);
  }
}

TEST_CASE("a timer armed for the past fires with the next tick") {
  timer_wheel wheel{start};
  probe timer;
  wheel.advance(start + 10s);
  wheel.arm(timer, start - 1h);
  wheel.advance(start + 10s);
  CHECK(timer.fired == 0);
  wheel.advance(start + 10s + timer_wheel::resolution);
  CHECK(timer.fired == 1);
}

TEST_CASE("arming again moves the deadline, disarming forgets it") {
  timer_wheel wheel{start};
  probe moved;
  probe forgotten;
  wheel.arm(moved, start + 1s);
  wheel.arm(forgotten, start + 1s);
  wheel.arm(moved, start + 5s);
  wheel.disarm(forgotten);
  wheel.disarm(forgotten);
  CHECK(wheel.armed() == 1);
  wheel.advance(start + 2s);
  CHECK(moved.fired == 0);
  wheel.advance(start + 6s);
  CHECK(moved.fired == 1);
  CHECK(forgotten.fired == 0);
  CHECK(wheel.armed() == 0);
}

TEST_CASE("a pause longer than the wheel's turn fires what is due and nothing else") {
  timer_wheel wheel{start};
  std::vector<std::unique_ptr<probe>> timers;
  for (auto i = 0; i < 2000; ++i) {
    timers.push_back(std::make_unique<probe>());
    wheel.arm(*timers.back(), start + i * 100ms);
  }
  wheel.advance(start + 150s);
  for (auto i = 0; i < 2000; ++i)
    CHECK(timers[static_cast<size_t>(i)]->fired == (i < 1500 ? 1 : 0));
  wheel.advance(start + 1h);
  for (auto& timer : timers)
    CHECK(timer->fired == 1);
}

TEST_CASE("a wheel on which nothing was armed for long starts from now") {
  timer_wheel wheel{start};
  wheel.advance(start + 24h);
  probe timer;
  wheel.arm(timer, start + 24h + 1s);
  wheel.advance(start + 24h + 900ms);
  CHECK(timer.fired == 0);
  wheel.advance(start + 24h + 1100ms);
  CHECK(timer.fired == 1);
}

TEST_CASE("a clock that steps back fires nothing twice and loses nothing") {
  timer_wheel wheel{start};
  probe timer;
  probe later;
  wheel.arm(timer, start + 100s);
  wheel.arm(later, start + 200s);
  wheel.advance(start + 150s);
  CHECK(timer.fired == 1);
  wheel.advance(start + 20s);
  CHECK(later.fired == 0);
  wheel.advance(start + 201s);
  CHECK(timer.fired == 1);
  CHECK(later.fired == 1);
}

TEST_CASE("callbacks may arm, disarm and destroy any timer, themselves included") {
  timer_wheel wheel{start};
  auto doomed = std::make_unique<probe>();
  probe silenced;
  probe moved;
  probe again;
  again.then = [&] {
    if (again.fired < 3)
      wheel.arm(again, start); // Fires in a later tick, or this would not end.
  };
  auto self = std::make_unique<probe>();
  self->then = [&] {
    self.reset();
  };
  probe master{[&] {
    doomed.reset();
    wheel.disarm(silenced);
    wheel.arm(moved, start + 10s);
  }};
  wheel.arm(master, start);
  for (auto timer : {doomed.get(), &silenced, &moved, &again, self.get()})
    wheel.arm(*timer, start);
  wheel.advance(start + 100ms);
  CHECK(master.fired == 1);
  CHECK(silenced.fired == 0);
  CHECK(moved.fired == 0);
  CHECK(again.fired == 1);
  CHECK(self == nullptr);
  CHECK(wheel.armed() == 2);
  wheel.advance(start + 200ms);
  CHECK(again.fired == 2);
  wheel.advance(start + 11s);
  CHECK(again.fired == 3);
  CHECK(moved.fired == 1);
  CHECK(wheel.armed() == 0);
}

TEST_CASE("timers may die before the wheel and the wheel before them") {
  probe survivor;
  {
    timer_wheel wheel{start};
    wheel.arm(survivor, start + 1s);
    {
      probe short_lived;
      wheel.arm(short_lived, start + 1s);
      CHECK(wheel.armed() == 2);
    }
    CHECK(wheel.armed() == 1);
  }
  CHECK_FALSE(survivor.armed());
}

TEST_CASE("random timers fire as a plain list of deadlines says") {
  std::mt19937_64 random{11};
  timer_wheel wheel{start};
  struct entry {
    probe timer;
    time_point when;
    bool armed = false;
    int expected = 0;
  };
  std::vector<std::unique_ptr<entry>> entries;
  for (auto i = 0; i < 100; ++i)
    entries.push_back(std::make_unique<entry>());
  auto now = start;
  for (auto i = 0; i < 20'000; ++i) {
    auto& one = *entries[random() % entries.size()];
    switch (random() % 8) {
      case 0:
        wheel.disarm(one.timer);
        one.armed = false;
        break;
      case 1:
        now += std::chrono::milliseconds{random() % (random() % 50 == 0 ? 100'000 : 200)};
        wheel.advance(now);
        for (auto& each : entries) {
          if (each->armed && each->timer.fired > each->expected) {
            REQUIRE(now > each->when); // Never early.
            ++each->expected;
            each->armed = false;
          }
          REQUIRE(each->timer.fired == each->expected);
          // Never more than a tick late.
          REQUIRE((!each->armed || now < each->when + timer_wheel::resolution));
        }
        break;
      default:
        one.when = now + std::chrono::milliseconds{random() % 120'000};
        one.armed = true;
        wheel.arm(one.timer, one.when);
    }
    size_t armed = 0;
    for (auto& each : entries)
      armed += each->armed;
    REQUIRE(wheel.armed() == armed);
  }
}
