// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/timer_wheel.hpp"
#include "messages/errc.hpp"

#include <caf/detail/type_list.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message_id.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace kvasir {

class io_task;
class io_unit;

/// Where the answer to one `io_unit::request` lands. Lives in the asker; destroying it while
/// pending forgets the answer.
///
/// Threading: belongs to the unit's thread.
class io_reply_base : private wheel_timer {
public:
  /// @param task is scheduled when an answer arrives after `request` returned.
  io_reply_base(io_unit& unit, io_task& task) noexcept : unit_(unit), task_(task) {}
  ~io_reply_base() override;

  bool pending() const noexcept { return index_ != no_index; }

  /// Set if the request failed; meaningless while pending.
  const caf::error& error() const noexcept { return error_; }
  explicit operator bool() const noexcept { return !pending() && !error_; }

protected:
  /// Moves the value out of the actor's response. @returns false if it has another type.
  virtual bool store(caf::type_erased_tuple& content) = 0;

private:
  friend class io_unit;
  friend class io_reply_table;
  static constexpr uint32_t no_index = UINT32_MAX;

  void on_timer() override;
  void fail(caf::error why) { error_ = std::move(why); }

  io_unit& unit_;
  io_task& task_;
  caf::error error_;
  uint32_t index_ = no_index;
};

template <class T>
class io_reply final : public io_reply_base {
public:
  using type_list = caf::detail::type_list<T>;
  using io_reply_base::io_reply_base;

  T value{};

private:
  bool store(caf::type_erased_tuple& content) override {
    if (!content.match_elements<T>())
      return false;
    value = std::move(content.get_mutable_as<T>(0));
    return true;
  }
};

/// An answer that only says that the request was carried out.
template <>
class io_reply<void> final : public io_reply_base {
public:
  using type_list = caf::detail::type_list<void>;
  using io_reply_base::io_reply_base;

private:
  bool store(caf::type_erased_tuple& content) override { return content.empty(); }
};

/// Finds the asker of a response: request ids carry an index and a generation, so that an
/// answer that comes after its deadline is recognised and dropped.
class io_reply_table {
public:
  caf::message_id add(io_reply_base& reply);

  /// @returns the asker, no longer pending, or null if it gave up meanwhile.
  io_reply_base* take(caf::message_id response);

  void remove(io_reply_base& reply) noexcept;

  /// Any one that still waits, no longer pending; null if there is none.
  io_reply_base* take_any() noexcept;

private:
  struct seat {
    io_reply_base* reply = nullptr;
    uint32_t generation = 0;
  };
  static constexpr unsigned index_bits = 24;

  std::vector<seat> seats_;
  std::vector<uint32_t> free_;
};

} // namespace kvasir
