// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/embedding/hold_set.hpp"
#include "actors/embedding/operation.hpp"
#include "messages/chunk_messages.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kvasir {

/// What became of a store.
struct store_result {
  size_t stored = 0;   ///< Chunks that this call published.
  size_t resident = 0; ///< Of the chunks asked for: readable when it ended.
};

/// What became of a load.
struct load_result {
  size_t chunks = 0;  ///< Copied, from the first asked for on, without a gap.
  size_t tokens = 0;  ///< In these.
  size_t corrupt = 0; ///< 1: the next one differed from its checksum and was dropped.
};

/// Keeps what bytes point into.
using keeper = std::shared_ptr<const void>;

/// Holds as much of a range as is there.
class lookup_call final : public operation_of<hold_user> {
public:
  lookup_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
              clock::time_point deadline, std::stop_token stop,
              std::shared_ptr<call_sink<hold_user>> sink, chunk_range range)
    : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
      range_(std::move(range)) {}

private:
  void begin() override;
  void on_acquired(chunks_acquired& answer);
  void hold(std::vector<read_lease> leases);

  chunk_range range_;
};

/// Copies held chunks out, and compares them.
class load_call final : public operation_of<load_result> {
public:
  struct target {
    std::vector<std::span<std::byte>> chunks;
    keeper owner;
  };

  load_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
            clock::time_point deadline, std::stop_token stop,
            std::shared_ptr<call_sink<load_result>> sink, hold_user from, target to)
    : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
      from_(std::move(from)),
      to_(std::move(to)) {}

private:
  void begin() override;
  void copy() override;
  void drop_inputs() override;
  bool copy_chunk(size_t i) const;

  hold_user from_;
  target to_;
};

/// Reserves, copies in, publishes.
class store_call final : public operation_of<store_result> {
public:
  struct source {
    std::vector<std::span<const std::byte>> chunks;
    keeper owner;
  };

  store_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
             clock::time_point deadline, std::stop_token stop,
             std::shared_ptr<call_sink<store_result>> sink, reserve_chunks claim, source from)
    : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
      claim_(std::move(claim)),
      from_(std::move(from)) {}

private:
  void begin() override;
  void on_reserved(chunk_reservations& answer);
  void copy() override;
  void on_finished(chunks_finished& answer);
  void drop_inputs() override { from_ = {}; }

  reserve_chunks claim_;
  std::vector<object_key> keys_;
  source from_;
  chunk_reservations reserved_;
  size_t written_ = 0;
};

/// Copies pieces from here to there: a layer, in or out.
class copy_call final : public operation_of<void> {
public:
  struct piece {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t size_bytes = 0;
  };
  struct job {
    std::vector<piece> pieces;
    std::vector<keeper> owners;
  };

  copy_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
            clock::time_point deadline, std::stop_token stop,
            std::shared_ptr<call_sink<void>> sink, job what)
    : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
      what_(std::move(what)) {}

private:
  void begin() override;
  void copy() override;
  void drop_inputs() override { what_ = {}; }

  job what_;
};

/// Asks the manager how it is.
class status_call final : public operation_of<storage_status> {
public:
  using operation_of::operation_of;

private:
  void begin() override { ask<&status_call::on_status>(get_storage_status{}); }
  void on_status(storage_status& answer) { succeed(answer); }
};

} // namespace kvasir
