#include "actors/io_unit.hpp"

#include <caf/actor_system.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace kvasir {

namespace {

thread_local io_unit* current_unit = nullptr;

/// Counters have one writer, so adding needs no locked instruction.
void add_one(std::atomic<uint64_t>& counter) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

/// The address under which actors are handed over, also by those who know them as an actor.
const void* handover_key([[maybe_unused]] caf::resumable* actor) noexcept {
#if defined(__SANITIZE_THREAD__)
  return dynamic_cast<caf::abstract_actor*>(actor);
#else
  return nullptr;
#endif
}

} // namespace

io_reply_base::~io_reply_base() {
  if (pending())
    unit_.replies_.remove(*this);
}

void io_reply_base::on_timer() {
  unit_.replies_.remove(*this);
  fail(caf::make_error(errc::timed_out));
  add_one(unit_.counters_.timed_out);
  unit_.schedule(task_);
}

// -- the actor that answers are sent to -------------------------------------------------

/// A `caf::actor_companion` would do, but Debian's library lacks its `disconnect`.
class io_unit::mailman final : public caf::monitorable_actor {
public:
  mailman(caf::actor_config& config, io_unit& unit)
    : caf::monitorable_actor(config),
      unit_(&unit) {}

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) override {
    if (!element)
      return;
    if (!element->mid.is_response()) {
      bounce(element);
      return;
    }
    // The address alone decides; `unit_` is only cleared by the unit's own thread or after it.
    if (current_unit != nullptr && current_unit == unit_address_) {
      current_unit->deliver(*element);
      return;
    }
    handover_release(this);
    std::lock_guard guard{mutex_};
    if (unit_ != nullptr)
      unit_->deliver_foreign(std::move(element));
  }

  const char* name() const override { return "io_mailman"; }

  void disconnect() {
    {
      std::lock_guard guard{mutex_};
      unit_ = nullptr;
    }
    cleanup(caf::make_error(caf::exit_reason::user_shutdown), nullptr);
    handover_release(this);
  }

  ~mailman() override { handover_acquire(this); }

private:
  std::mutex mutex_;
  io_unit* unit_;
  const io_unit* const unit_address_ = unit_;
};

// -- construction and end ---------------------------------------------------------------

io_unit::io_unit(caf::actor_system& system)
  : caf::execution_unit(&system),
    wheel_(clock::now()),
    now_(clock::now()) {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  event_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_fd_ < 0 || event_fd_ < 0
      || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event_fd_, &event) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot create an I/O unit");
  caf::actor_config config{nullptr};
  self_ = caf::make_actor<mailman, caf::strong_actor_ptr>(system.next_actor_id(), system.node(),
                                                          &system, config, *this);
  mailman_ = static_cast<mailman*>(self_->get());
}

io_unit::~io_unit() {
  stop();
  close(event_fd_);
  close(epoll_fd_);
}

void io_unit::add_inline(caf::abstract_actor* actor) {
  if (auto resumable = dynamic_cast<caf::resumable*>(actor))
    inline_actors_.push_back(resumable);
}

void io_unit::remove_inline(caf::abstract_actor* actor) {
  std::erase(inline_actors_, dynamic_cast<caf::resumable*>(actor));
}

void io_unit::start() {
  thread_ = std::thread{[this] {
    run();
  }};
}

void io_unit::stop() {
  {
    std::lock_guard guard{inbox_mutex_};
    stopping_ = true;
    wake();
  }
  if (thread_.joinable())
    thread_.join();
  if (mailman_ != nullptr) {
    std::exchange(mailman_, nullptr)->disconnect();
    self_ = nullptr;
  }
  // Destroyed without the lock: what a job holds may post from its destructor.
  std::vector<caf::mailbox_element_ptr> replies;
  std::vector<std::function<void()>> jobs;
  std::lock_guard guard{inbox_mutex_};
  replies.swap(inbox_replies_);
  jobs.swap(inbox_jobs_);
}

bool io_unit::on_this_thread() const noexcept {
  return current_unit == this;
}

// -- from other threads -----------------------------------------------------------------

/// @pre `inbox_mutex_` is held.
void io_unit::wake() {
  if (std::exchange(woken_, true))
    return;
  counters_.eventfd_writes.fetch_add(1, std::memory_order_relaxed);
  const uint64_t one = 1;
  // Can only fail if the counter is full, and then the thread wakes up anyway.
  [[maybe_unused]] auto written = write(event_fd_, &one, sizeof(one));
}

void io_unit::post(std::function<void()> job) {
  std::lock_guard guard{inbox_mutex_};
  if (stopping_)
    return;
  inbox_jobs_.push_back(std::move(job));
  wake();
}

void io_unit::deliver_foreign(caf::mailbox_element_ptr element) {
  std::lock_guard guard{inbox_mutex_};
  inbox_replies_.push_back(std::move(element));
  wake();
}

void io_unit::take_inbox() {
  std::vector<caf::mailbox_element_ptr> replies;
  std::vector<std::function<void()>> jobs;
  {
    std::lock_guard guard{inbox_mutex_};
    replies.swap(inbox_replies_);
    jobs.swap(inbox_jobs_);
    woken_ = false;
    uint64_t count = 0;
    [[maybe_unused]] auto got = read(event_fd_, &count, sizeof(count));
  }
  for (auto& reply : replies) {
    add_one(counters_.foreign_replies);
    handover_acquire(mailman_);
    deliver(*reply);
  }
  for (auto& job : jobs)
    job();
}

// -- asking -----------------------------------------------------------------------------

caf::message_id io_unit::begin(io_reply_base& answer) {
  add_one(counters_.requests);
  asking_ = &answer;
  return replies_.add(answer);
}

void io_unit::enqueue(caf::abstract_actor* receiver, caf::mailbox_element_ptr element) {
  handover_release(receiver); // The element is complete: what was written to it goes along.
  receiver->enqueue(std::move(element), this);
  run_actors();
}

void io_unit::end(io_reply_base& answer, clock::duration deadline) {
  asking_ = nullptr;
  if (answer.pending())
    wheel_.arm(answer, now_ + deadline);
}

void io_unit::deliver(caf::mailbox_element& element) {
  auto reply = replies_.take(element.mid);
  if (reply == nullptr)
    return; // Came after its deadline, or its asker is gone.
  wheel_.disarm(*reply);
  auto& content = element.content();
  if (content.match_elements<caf::error>())
    reply->fail(content.get_as<caf::error>(0));
  else if (!reply->store(content))
    reply->fail(caf::make_error(caf::sec::unexpected_response));
  if (reply != asking_)
    schedule(reply->task_);
}

// -- running actors ---------------------------------------------------------------------

void io_unit::exec_later(caf::resumable* actor) {
  // An actor may keep naming this unit as its context while another thread runs it.
  auto is_inline
    = on_this_thread()
      && std::find(inline_actors_.begin(), inline_actors_.end(), actor) != inline_actors_.end();
  if (is_inline)
    run_queue_.push_back(actor);
  else
    hand_to_scheduler(actor);
}

void io_unit::hand_to_scheduler(caf::resumable* actor) {
  counters_.scheduler_enqueues.fetch_add(1, std::memory_order_relaxed);
  system().scheduler().enqueue(actor);
}

void io_unit::run_actors() {
  while (!run_queue_.empty()) {
    auto actor = run_queue_.back();
    run_queue_.pop_back();
    add_one(counters_.inline_resumes);
    handover_acquire(handover_key(actor));
    auto result = actor->resume(this, quantum);
    handover_release(handover_key(actor));
    switch (result) {
      case caf::resumable::resume_later:
        hand_to_scheduler(actor);
        break;
      case caf::resumable::awaiting_message:
      case caf::resumable::done:
        caf::intrusive_ptr_release(actor);
        break;
      case caf::resumable::shutdown_execution_unit:
        break; // Only CAF's own workers are asked to end this way.
    }
  }
}

// -- the loop ---------------------------------------------------------------------------

bool io_unit::watch(int fd, uint32_t events, io_task& task) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.ptr = &task;
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool io_unit::rewatch(int fd, uint32_t events, io_task& task) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.ptr = &task;
  return epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0;
}

void io_unit::unwatch(int fd) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void io_unit::schedule(io_task& task) {
  // A retired one may still be told of an answer while others of its round are destroyed.
  if (!task.retired_ && !std::exchange(task.scheduled_, true))
    ready_.push_back(&task);
}

void io_unit::retire(std::unique_ptr<io_task> task) {
  task->retired_ = true;
  retired_.push_back(std::move(task));
}

int io_unit::wait_ms() const {
  if (!ready_.empty())
    return 0;
  if (wheel_.armed() == 0)
    return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(wheel_.next_tick() - clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

void io_unit::run() {
  system().thread_started();
  current_unit = this;
  for (;;) {
    run_round(wait_ms());
    std::lock_guard guard{inbox_mutex_};
    if (stopping_ && inbox_jobs_.empty())
      break;
  }
  while (auto reply = replies_.take_any())
    reply->fail(caf::make_error(errc::peer_unreachable));
  destroy_retired();
  for (auto actor : run_queue_)
    hand_to_scheduler(actor);
  run_queue_.clear();
  current_unit = nullptr;
  system().thread_terminates();
}

void io_unit::run_round(int timeout_ms) {
  std::array<epoll_event, 128> events;
  auto count
    = epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), timeout_ms);
  now_ = clock::now();
  for (auto i = 0; i < count; ++i) {
    auto& event = events[static_cast<size_t>(i)];
    auto task = static_cast<io_task*>(event.data.ptr);
    if (task == nullptr) {
      take_inbox();
    } else if (!task->retired_) {
      task->on_events(event.events);
      schedule(*task);
    }
  }
  wheel_.advance(now_);
  running_.swap(ready_);
  for (auto task : running_) {
    task->scheduled_ = false;
    if (!task->retired_)
      task->run();
  }
  running_.clear();
  destroy_retired();
}

void io_unit::destroy_retired() {
  while (!retired_.empty()) {
    // A task that retired while it was scheduled is still named in `ready_`.
    std::erase_if(ready_, [](const io_task* task) { return task->retired_; });
    // Destructors may retire others.
    auto gone = std::exchange(retired_, {});
  }
}

} // namespace kvasir
