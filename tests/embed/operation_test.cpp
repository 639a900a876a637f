#include "actors/embedding/operation.hpp"

#include "actors/embedding/engine_calls.hpp"
#include "actors/embedding/start_call.hpp"
#include "support/embedded_client.hpp"

#include <optional>

using namespace kvasir;
using namespace kvasir::test;

/// What a call does when it is no longer waited for.

namespace {

/// Waits until it is woken, or for an answer to a question that the test asks in its name.
class waiting_call final : public operation_of<void> {
public:
  waiting_call(caf::actor_config& config, std::shared_ptr<engine_core> core,
               clock::time_point deadline, std::stop_token stop,
               std::shared_ptr<call_sink<void>> sink, caf::strong_actor_ptr* itself)
    : operation_of(config, std::move(core), deadline, std::move(stop), std::move(sink)),
      itself_(itself) {}

private:
  void begin() override {
    *itself_ = self();
    expect_wake();
    wait_for_wake();
  }
  void woken() override { succeed(caf::unit); }

  caf::strong_actor_ptr* itself_;
};

struct core_fixture {
  core_fixture() {
    auto opened = engine_core::open(small_options(), nullptr);
    REQUIRE(opened);
    core = std::move(*opened);
  }
  ~core_fixture() { core->close(); }

  /// @returns the call, which waits, and what will be known of its end.
  caf::strong_actor_ptr wait_for_something(const call_options& options = {}) {
    caf::strong_actor_ptr result;
    ended.emplace(start<waiting_call, void>(core, options, &result));
    REQUIRE(result);
    REQUIRE(core->pending().size() == 1);
    return result;
  }

  static operation& of(const caf::strong_actor_ptr& call) {
    return *static_cast<operation*>(call->get());
  }

  /// Returns when the I/O unit has done all that it was asked before.
  void drain_unit() {
    one_shot done;
    core->post([&] { done.raise(); });
    REQUIRE(done.wait());
  }

  uint64_t leases() {
    auto status = value_of(start<status_call, storage_status>(core, {}));
    return status.read_leases + status.write_leases;
  }

  std::shared_ptr<engine_core> core;
  std::optional<call<void>> ended;
};

} // namespace

TEST_CASE_FIXTURE(core_fixture, "a call that is woken goes on, once") {
  auto call = wait_for_something();
  of(call).wake();
  CHECK(await(std::move(*ended)));
  of(call).abort(errc::cancelled);
  CHECK(core->pending().size() == 0);
}

TEST_CASE_FIXTURE(core_fixture, "a call that is aborted is not woken any more") {
  auto call = wait_for_something();
  of(call).abort(errc::cancelled);
  of(call).abort(errc::timed_out);
  of(call).wake();
  drain_unit();
  CHECK(error_of(std::move(*ended)) == errc::cancelled);
  CHECK(core->pending().size() == 0);
}

TEST_CASE_FIXTURE(core_fixture, "leases in an answer that comes too late are given back") {
  const object_key key{std::string{"\0key", 4}};
  const reserve_chunks claim{
    core->owner(), {}, core->stored_as(), core->chunk_bytes(), {{key, {}}}};
  auto hold = false;
  SUBCASE("reservations") {}
  SUBCASE("holds") {
    hold = true;
    const std::vector<std::byte> bytes(core->chunk_bytes());
    store_call::source from{{bytes}, nullptr};
    REQUIRE(value_of(start<store_call, store_result>(core, {}, claim, from)).stored == 1);
  }
  auto call = wait_for_something();
  of(call).abort(errc::timed_out);
  REQUIRE(error_of(std::move(*ended)) == errc::timed_out);
  if (hold)
    core->unit().request(core->manager(), acquire_chunks{core->owner(), {key}, true}, call);
  else
    core->unit().request(core->manager(), claim, call);
  leases(); // Answered after that.
  drain_unit();
  CHECK(leases() == 0);
}

TEST_CASE_FIXTURE(core_fixture, "a message that is no answer is refused and harms nothing") {
  auto call = wait_for_something();
  of(call).enqueue(
    caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, check_health{}), nullptr);
  of(call).wake();
  CHECK(await(std::move(*ended)));
}
