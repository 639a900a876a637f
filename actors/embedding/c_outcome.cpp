#include "actors/embedding/c_outcome.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace kvasir {

namespace {

/// Whether this thread is in a `done`, where it must not wait: it may be the one that ends calls.
thread_local int dones_under_way = 0;

void run(c_outcome::done_function done, void* user) {
  ++dones_under_way;
  done(user);
  --dones_under_way;
}

/// As much of it as fits, and no half character.
size_t cut(std::string_view text, size_t limit) {
  if (text.size() <= limit)
    return text.size();
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80)
    --limit;
  return limit;
}

} // namespace

// -- errors -----------------------------------------------------------------------------

kvasir_code report(kvasir_error* error, kvasir_code code, std::string_view text) noexcept {
  if (error == nullptr)
    return code;
  error->code = code;
  const auto size = cut(text, sizeof(error->text) - 1);
  std::copy_n(text.data(), size, error->text);
  error->text[size] = '\0';
  return code;
}

kvasir_code report(kvasir_error* error, const caf::error& why) {
  auto& context = why.context();
  if (why.category() != caf::atom("kvasir"))
    return report(error, KVASIR_INTERNAL, to_string(why));
  const auto code = static_cast<kvasir_code>(why.code());
  if (context.match_elements<std::string>())
    return report(error, code, context.get_as<std::string>(0));
  return report(error, code, context.empty() ? kvasir_code_name(code) : to_string(why));
}

kvasir_code report_exception(kvasir_error* error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return report(error, KVASIR_OUT_OF_MEMORY, "the process has no memory left");
  } catch (const std::exception& what) {
    return report(error, KVASIR_INTERNAL, what.what());
  } catch (...) {
    return report(error, KVASIR_INTERNAL, "an exception of unknown type");
  }
}

// -- the outcome ------------------------------------------------------------------------

void c_outcome::end(value_type value, caf::error why) {
  done_function done = nullptr;
  {
    std::lock_guard guard{mutex_};
    value_ = std::move(value);
    why_ = std::move(why);
    ended_ = true;
    done = done_;
  }
  if (done != nullptr)
    run(done, user_);
  std::lock_guard guard{mutex_};
  finished_ = true;
  changed_.notify_all();
}

bool c_outcome::ready() const {
  std::lock_guard guard{mutex_};
  return ended_;
}

bool c_outcome::wait() {
  std::unique_lock guard{mutex_};
  if (dones_under_way > 0)
    return ended_;
  changed_.wait(guard, [this] { return finished_; });
  return true;
}

bool c_outcome::then(done_function done, void* user) {
  {
    std::lock_guard guard{mutex_};
    if (std::exchange(has_done_, true))
      return false;
    if (!ended_) {
      done_ = done;
      user_ = user;
      return true;
    }
  }
  run(done, user);
  return true;
}

namespace {

constexpr auto no_call = "the call is NULL: there was no memory for it, or it is an error";

template <class T>
constexpr bool is_given_out_once
  = std::is_same_v<T, held_prefix> || std::is_same_v<T, std::shared_ptr<stage_set>>;

/// Waits, then gives the outcome's value to `f`.
template <class T, class F>
kvasir_code take(kvasir_call* call, kvasir_error* error, F f) noexcept {
  if (call == nullptr)
    return refuse(error, no_call);
  return guarded(error, [&] {
    if (!call->outcome->wait())
      return refuse(error, "a call that has not ended cannot be waited for in a done");
    return call->outcome->with_result([&](c_outcome::value_type& value, const caf::error& why) {
      if (why)
        return report(error, why);
      auto found = std::get_if<T>(&value);
      if (found == nullptr)
        return refuse(error, "the call has no such result, or it was taken");
      f(*found);
      if constexpr (is_given_out_once<T>)
        value = std::monostate{};
      return KVASIR_OK;
    });
  });
}

template <class T, class Handle, class Make>
kvasir_code take_handle(kvasir_call* call, Handle** out, kvasir_error* error,
                        Make make) noexcept {
  if (out == nullptr)
    return refuse(error, "there is nowhere to put the result");
  *out = nullptr;
  return take<T>(call, error, [&](T& found) { *out = make(std::move(found)); });
}

void put(size_t* where, size_t value) {
  if (where != nullptr)
    *where = value;
}

} // namespace

} // namespace kvasir

using namespace kvasir;

extern "C" {

int kvasir_call_ready(const kvasir_call* call) {
  return call == nullptr || call->outcome->ready() ? 1 : 0;
}

kvasir_code kvasir_call_wait(kvasir_call* call, kvasir_error* error) {
  if (call == nullptr)
    return refuse(error, no_call);
  return guarded(error, [&] {
    if (!call->outcome->wait())
      return refuse(error, "a call that has not ended cannot be waited for in a done");
    return call->outcome->with_result(
      [&](auto&, const caf::error& why) { return why ? report(error, why) : KVASIR_OK; });
  });
}

kvasir_code kvasir_call_then(kvasir_call* call, void (*done)(void*), void* user,
                             kvasir_error* error) {
  if (call == nullptr)
    return refuse(error, no_call);
  if (done == nullptr)
    return refuse(error, "done is NULL");
  return guarded(error, [&] {
    auto outcome = call->outcome; // `done` may free the call.
    return outcome->then(done, user) ? KVASIR_OK : refuse(error, "the call has a done already");
  });
}

void kvasir_call_cancel(kvasir_call* call) {
  if (call != nullptr)
    guarded(nullptr, [&] {
      call->stop.request_stop();
      return KVASIR_OK;
    });
}

void kvasir_call_free(kvasir_call* call) {
  if (call == nullptr)
    return;
  if (kvasir_call_ready(call) == 0)
    kvasir_call_cancel(call);
  guarded(nullptr, [&] {
    call->outcome->wait();
    return KVASIR_OK;
  });
  delete call;
}

kvasir_code kvasir_call_prefix(kvasir_call* call, kvasir_prefix** prefix, kvasir_error* error) {
  return take_handle<held_prefix>(call, prefix, error, [](held_prefix&& found) {
    return new kvasir_prefix{std::move(found)};
  });
}

kvasir_code kvasir_call_layers(kvasir_call* call, kvasir_layers** layers, kvasir_error* error) {
  return take_handle<std::shared_ptr<stage_set>>(
    call, layers, error,
    [](std::shared_ptr<stage_set>&& staged) { return new kvasir_layers{std::move(staged)}; });
}

kvasir_code kvasir_call_stored(kvasir_call* call, size_t* stored, size_t* resident,
                               kvasir_error* error) {
  return take<store_result>(call, error, [&](const store_result& found) {
    put(stored, found.stored);
    put(resident, found.resident);
  });
}

kvasir_code kvasir_call_loaded(kvasir_call* call, size_t* loaded, size_t* corrupt,
                               kvasir_error* error) {
  return take<load_result>(call, error, [&](const load_result& found) {
    put(loaded, found.chunks);
    put(corrupt, found.corrupt);
  });
}

kvasir_code kvasir_call_status(kvasir_call* call, kvasir_status* status, kvasir_error* error) {
  if (status == nullptr || status->struct_size < sizeof(status->struct_size))
    return refuse(error, "the status is NULL, or has no struct_size");
  return take<storage_status>(call, error, [&](const storage_status& found) {
    const kvasir_status filled{status->struct_size,
                               found.capacity_bytes,
                               found.usable_bytes,
                               found.used_bytes,
                               found.staged_bytes,
                               found.held_bytes,
                               found.objects,
                               found.write_leases,
                               found.read_leases,
                               found.evicted_objects,
                               found.corrupt_objects,
                               found.chunks_stored,
                               found.chunks_no_room,
                               found.prefix_lookups,
                               found.prefix_chunks_asked,
                               found.prefix_chunks_held,
                               found.prefixes_cut};
    std::memset(status, 0, filled.struct_size);
    std::memcpy(status, &filled, std::min(filled.struct_size, sizeof(filled)));
  });
}

} // extern "C"
