// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/io_unit.hpp"
#include "actors/socket.hpp"

#include <functional>

namespace kvasir {

/// Accepts connections of one listening socket and hands them on.
///
/// Running out of file descriptors does not end it: a spare descriptor is given up to accept
/// and close the newcomer, so that it learns at once, and accepting goes on a little later.
///
/// Threading: belongs to its unit's thread.
class acceptor final : public io_task {
public:
  using accept_handler = std::function<void(socket_handle)>;
  using refuse_handler = std::function<void()>;

  acceptor(io_unit& unit, socket_handle listener, accept_handler on_accept,
           refuse_handler on_refuse);

  /// Starts watching. Unit's thread only.
  void open();

  void run() override;

private:
  class retry_timer final : public wheel_timer {
  public:
    explicit retry_timer(acceptor& self) noexcept : self_(self) {}

  private:
    void on_timer() override { self_.unit_.schedule(self_); }
    acceptor& self_;
  };

  /// @returns false if there was nobody to refuse, or not even a descriptor for that.
  bool refuse_one();

  io_unit& unit_;
  socket_handle listener_;
  socket_handle spare_;
  accept_handler on_accept_;
  refuse_handler on_refuse_;
  retry_timer retry_{*this};
};

} // namespace kvasir
