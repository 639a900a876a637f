// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/byte_client.hpp"
#include "actors/embedding/kvasir.h"

#include <caf/expected.hpp>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stop_token>
#include <string_view>
#include <utility>
#include <variant>

namespace kvasir {

/// How a `kvasir_call` ended, or who waits for that. Shared by the handle and the continuation.
///
///   running --settle--> ended --`done` returned--> finished
///
/// Results can be had once it ended in a `done`, for others once it is finished: so nothing of a
/// call is left when a thread that waited for it goes on.
///
/// Threading: any thread.
class c_outcome {
public:
  using value_type = std::variant<std::monostate, held_prefix, store_result, load_result,
                                  storage_status, std::shared_ptr<stage_set>>;
  using done_function = void (*)(void*);

  template <class T>
  void settle(caf::expected<T> got) {
    if (got)
      end(value_type{std::move(*got)}, {});
    else
      end({}, std::move(got.error()));
  }
  void settle(caf::expected<void> got) { end({}, got ? caf::error{} : std::move(got.error())); }

  bool ready() const;

  /// @returns false in a `done`, if it has not ended.
  bool wait();

  /// @returns false if there is a `done` already.
  bool then(done_function done, void* user);

  /// @pre `ready()`. Under the lock, for two threads may ask for one result.
  template <class F>
  auto with_result(F f) {
    std::lock_guard guard{mutex_};
    return f(value_, why_);
  }

private:
  void end(value_type value, caf::error why);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  bool finished_ = false;
  bool has_done_ = false;
  done_function done_ = nullptr;
  void* user_ = nullptr;
  value_type value_;
  caf::error why_;
};

/// Fills `error`, if it is not null. @returns `code`
kvasir_code report(kvasir_error* error, kvasir_code code, std::string_view text) noexcept;
kvasir_code report(kvasir_error* error, const caf::error& why);

inline kvasir_code refuse(kvasir_error* error, std::string_view text) noexcept {
  return report(error, KVASIR_INVALID_ARGUMENT, text);
}

/// What an exception that must not reach C means.
kvasir_code report_exception(kvasir_error* error) noexcept;

/// Runs `f`, which returns a code.
template <class F>
kvasir_code guarded(kvasir_error* error, F f) noexcept {
  try {
    return f();
  } catch (...) {
    return report_exception(error);
  }
}

} // namespace kvasir

/// What C's handles are.
struct kvasir_client {
  kvasir::byte_client bytes;
};

struct kvasir_prompt {
  kvasir::prompt names;
};

struct kvasir_prefix {
  kvasir::held_prefix held;
};

struct kvasir_chunk {
  kvasir_chunk(std::shared_ptr<kvasir::hold_set> holds, size_t index)
    : set(std::move(holds)),
      i(index) {
    set->add_user(i);
  }
  ~kvasir_chunk() { set->remove_user(i); }
  kvasir_chunk(const kvasir_chunk&) = delete;
  kvasir_chunk& operator=(const kvasir_chunk&) = delete;

  std::shared_ptr<kvasir::hold_set> set;
  size_t i;
};

struct kvasir_layers {
  explicit kvasir_layers(std::shared_ptr<kvasir::stage_set> chunks) noexcept
    : staged(std::move(chunks)) {}

  std::shared_ptr<kvasir::stage_set> get() {
    std::lock_guard guard{mutex};
    return staged;
  }
  std::shared_ptr<kvasir::stage_set> take() {
    std::lock_guard guard{mutex};
    return std::move(staged);
  }

  std::mutex mutex;
  std::shared_ptr<kvasir::stage_set> staged; ///< Null: it was committed.
};

struct kvasir_call {
  std::shared_ptr<kvasir::c_outcome> outcome = std::make_shared<kvasir::c_outcome>();
  std::stop_source stop;
};
