// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "arrays.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace kvasir_python {

/// Frees without the GIL: what is freed may wait for a thread that needs it.
template <class T>
std::shared_ptr<T> shared(T* handle, void (*free)(T*)) {
  return {handle, [free](T* gone) {
            if (PyGILState_Check() != 0) {
              nb::gil_scoped_release released;
              free(gone);
            } else {
              free(gone);
            }
          }};
}

/// A call under way, the arrays that it uses, and how its result becomes an object.
class call {
public:
  using make_result = std::function<nb::object(kvasir_call*)>;

  call(kvasir_call* begun, make_result make, std::optional<array_bytes> arrays);
  call(call&&) = default;
  call& operator=(call&&) = delete;

  /// Cancels it and waits, for the arrays are in use until it has ended.
  ~call();

  bool ready() const { return kvasir_call_ready(handle_.get()) != 0; }

  /// Waits without the GIL. The result can be had once.
  nb::object result();

  /// Waits until it ended, however.
  void wait();

  /// Calls `done()` once it has ended, on any thread.
  void then(nb::callable done);

  void cancel() { kvasir_call_cancel(handle_.get()); }

private:
  std::optional<array_bytes> arrays_; ///< Outlive the call.
  make_result make_;
  std::shared_ptr<kvasir_call> handle_;
};

void bind_call(nb::module_& module);

} // namespace kvasir_python
