#include "actors/embedding/operation.hpp"

#include "actors/handover.hpp"
#include "messages/chunk_messages.hpp"

#include <utility>

namespace kvasir {

namespace {

/// How often an asker looks for an answer that another thread is about to give, before it leaves: some
/// microseconds, less than a wake-up.
constexpr int looks_for_answer = 200;

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

} // namespace

operation::operation(caf::actor_config& config, std::shared_ptr<engine_core> core,
                     clock::time_point deadline, std::stop_token stop)
  : caf::monitorable_actor(config),
    core_(std::move(core)),
    deadline_(deadline),
    stop_(std::move(stop)) {}

void operation::start() {
  if (stop_.stop_requested())
    finish(caf::make_error(errc::cancelled));
  else
    begin();
}

// -- ending -----------------------------------------------------------------------------

void operation::stopper::operator()() const noexcept {
  // Noticed by a copy at once; a call that waits is ended on the I/O unit.
  uint8_t none = 0;
  call->abort_code_.compare_exchange_strong(none, static_cast<uint8_t>(errc::cancelled));
  call->core_->post([self = call->self(), call = call] { call->abort(errc::cancelled); });
}

void operation::abort(errc why) {
  uint8_t none = 0;
  abort_code_.compare_exchange_strong(none, static_cast<uint8_t>(why));
  abort_if_parked();
}

void operation::abort_if_parked() {
  if (abort_code_ != 0 && unpark())
    finish(stop_error());
}

bool operation::stopped() {
  if (abort_code_ == 0 && clock::now() >= deadline_)
    abort_code_ = static_cast<uint8_t>(errc::timed_out);
  return abort_code_ != 0;
}

caf::error operation::stop_error() const {
  return caf::make_error(static_cast<errc>(abort_code_.load()));
}

void operation::fail(caf::error why) {
  finish(std::move(why));
}

void operation::finish(caf::error why) {
  clean_up();
  settle_error(std::move(why));
}

void operation::end() {
  clean_up();
}

void operation::clean_up() {
  phase_ = phase::done;
  if (std::exchange(pending_, false)) {
    stop_callback_.reset();
    core_->pending().remove(*this);
  }
  if (!leases_.empty())
    core_->end_leases(std::exchange(leases_, {}));
  drop_inputs();
}

// -- waiting ----------------------------------------------------------------------------

bool operation::unpark() noexcept {
  auto expected = phase::parked;
  return phase_.compare_exchange_strong(expected, phase::active);
}

/// @pre active. @returns false if it has ended instead.
bool operation::become_pending() {
  if (!pending_) {
    if (!core_->add_pending(*this)) {
      finish(caf::make_error(errc::busy));
      return false;
    }
    pending_ = true;
    if (stop_.stop_possible())
      stop_callback_.emplace(stop_, stopper{this});
  }
  phase_ = phase::parked;
  return true;
}

void operation::before_asking() {
  answer_ = nullptr;
  reply_ = reply::none;
}

void operation::after_asking() {
  for (auto i = 0; i < looks_for_answer; ++i) {
    if (reply_.load(std::memory_order_acquire) == reply::here) {
      take_answer();
      return;
    }
    pause_core();
  }
  auto self = this->self(); // Once parked, it may end at any time.
  auto parked = become_pending();
  auto expected = reply::none;
  if (reply_.compare_exchange_strong(expected, reply::awaited)) {
    if (parked)
      abort_if_parked();
  } else if (parked && unpark()) {
    take_answer();
  } else {
    drop_answer();
  }
}

void operation::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  if (!element)
    return;
  if (!element->mid.is_response()) {
    bounce(element);
    return;
  }
  answer_ = std::move(element);
  wake();
}

void operation::wake() {
  handover_release(this);
  if (reply_.exchange(reply::here, std::memory_order_acq_rel) != reply::awaited)
    return;
  core_->post([self = self(), this] {
    if (unpark())
      take_answer();
    else
      drop_answer();
  });
}

void operation::take_answer() {
  handover_acquire(this);
  auto element = std::move(answer_);
  if (!element) {
    woken();
    return;
  }
  auto& content = element->content();
  if (content.match_elements<caf::error>())
    finish(content.get_as<caf::error>(0));
  else if (!next_(*this, content))
    finish(caf::make_error(caf::sec::unexpected_response));
}

/// The call has ended before its answer came: nobody else knows of the leases in it.
void operation::drop_answer() {
  handover_acquire(this);
  auto element = std::move(answer_);
  if (!element)
    return;
  auto& content = element->content();
  std::vector<lease_id> leases;
  if (content.match_elements<chunk_reservations>()) {
    for (auto& chunk : content.get_as<chunk_reservations>(0).chunks)
      if (chunk.state == chunk_state::reserved)
        leases.push_back(chunk.lease.id);
  } else if (content.match_elements<chunks_acquired>()) {
    for (auto& lease : content.get_as<chunks_acquired>(0).leases)
      leases.push_back(lease.id);
  }
  if (!leases.empty())
    core_->end_leases(std::move(leases));
}

// -- copying ----------------------------------------------------------------------------

void operation::copy_here_or_elsewhere(uint64_t bytes) {
  if (bytes <= core_->options().max_inline_copy_bytes) {
    copy();
    return;
  }
  auto self = this->self();
  if (!become_pending())
    return;
  auto taken = core_->submit([self, this] {
    if (unpark())
      copy();
  });
  if (taken)
    abort_if_parked();
  else if (unpark())
    finish(stopped() ? stop_error() : caf::make_error(errc::busy));
}

} // namespace kvasir
