#include "actors/embedding/c_outcome.hpp"

#include <chrono>
#include <string>
#include <vector>

/// The functions of the C interface that ask.

using namespace kvasir;

namespace {

caf::error wrong(std::string what) {
  return caf::make_error(errc::invalid_argument, std::move(what));
}

/// A call of what `ask(const call_options&)` returns.
template <class Ask>
kvasir_call* begin(uint32_t deadline_ms, Ask ask) noexcept {
  std::unique_ptr<kvasir_call> handle;
  auto fail = [&](caf::error why) {
    if (handle)
      handle->outcome->settle(caf::expected<void>{std::move(why)});
  };
  try {
    handle = std::make_unique<kvasir_call>();
    call_options options;
    if (deadline_ms != 0)
      options.deadline = std::chrono::milliseconds{deadline_ms};
    options.stop = handle->stop.get_token();
    ask(options).then(
      [outcome = handle->outcome](auto got) { outcome->settle(std::move(got)); });
  } catch (const std::bad_alloc&) {
    fail(caf::make_error(errc::out_of_memory));
  } catch (const std::exception& what) {
    fail(caf::make_error(caf::sec::runtime_error, what.what()));
  }
  return handle.release();
}

/// A call that failed before it began.
kvasir_call* begin_wrong(const char* what) noexcept {
  return begin(0, [what](const call_options&) { return call<void>{wrong(what)}; });
}

constexpr auto no_client = "the client is NULL";
constexpr auto no_prompt = "the client or the prompt is NULL";
constexpr auto no_prefix = "the client or the prefix is NULL";

/// C's buffers as what a call reads or writes. More than `limit` are not looked at.
template <class Bytes>
caf::error take_buffers(const kvasir_buffer* buffers, size_t count, size_t limit,
                        Bytes& result) {
  if (count > limit)
    return wrong(std::to_string(count) + " buffers for " + std::to_string(limit) + " chunks");
  if (buffers == nullptr && count > 0)
    return wrong("the buffers are NULL");
  using span = typename decltype(result.chunks)::value_type;
  result.chunks.reserve(count);
  for (size_t i = 0; i < count; ++i)
    result.chunks.push_back(
      span{static_cast<typename span::pointer>(buffers[i].data), buffers[i].size});
  return caf::none;
}

} // namespace

extern "C" {

kvasir_call* kvasir_lookup(kvasir_client* client, const kvasir_prompt* prompt,
                           uint32_t deadline_ms) {
  if (client == nullptr || prompt == nullptr)
    return begin_wrong(no_prompt);
  return begin(deadline_ms, [&](const call_options& options) {
    return client->bytes.lookup(prompt->names, options);
  });
}

kvasir_call* kvasir_store(kvasir_client* client, const kvasir_prompt* prompt, size_t first,
                          const kvasir_buffer* chunks, size_t chunk_count,
                          uint32_t deadline_ms) {
  if (client == nullptr || prompt == nullptr)
    return begin_wrong(no_prompt);
  return begin(deadline_ms, [&](const call_options& options) {
    store_call::source from;
    if (auto why = take_buffers(chunks, chunk_count, prompt->names.chunk_count(), from))
      return call<store_result>{std::move(why)};
    return client->bytes.store(prompt->names, std::move(from), first, options);
  });
}

kvasir_call* kvasir_load(kvasir_client* client, const kvasir_prompt* prompt, size_t first,
                         const kvasir_buffer* chunks, size_t chunk_count,
                         uint32_t deadline_ms) {
  if (client == nullptr || prompt == nullptr)
    return begin_wrong(no_prompt);
  return begin(deadline_ms, [&](const call_options& options) {
    load_call::target into;
    if (auto why = take_buffers(chunks, chunk_count, prompt->names.chunk_count(), into))
      return call<load_result>{std::move(why)};
    return client->bytes.load(prompt->names, std::move(into), first, options);
  });
}

kvasir_call* kvasir_load_held(kvasir_client* client, const kvasir_prefix* prefix,
                              const kvasir_buffer* chunks, size_t chunk_count,
                              uint32_t deadline_ms) {
  if (client == nullptr || prefix == nullptr)
    return begin_wrong(no_prefix);
  return begin(deadline_ms, [&](const call_options& options) {
    load_call::target into;
    if (auto why = take_buffers(chunks, chunk_count, prefix->held.chunks(), into))
      return call<load_result>{std::move(why)};
    return client->bytes.load(prefix->held, std::move(into), options);
  });
}

kvasir_call* kvasir_load_layer(kvasir_client* client, const kvasir_prefix* prefix, size_t layer,
                               const kvasir_buffer* chunks, size_t chunk_count,
                               uint32_t deadline_ms) {
  if (client == nullptr || prefix == nullptr)
    return begin_wrong(no_prefix);
  return begin(deadline_ms, [&](const call_options& options) {
    load_call::target into;
    if (auto why = take_buffers(chunks, chunk_count, prefix->held.chunks(), into))
      return call<void>{std::move(why)};
    return client->bytes.load_layer(prefix->held, layer, std::move(into), options);
  });
}

kvasir_call* kvasir_begin_store(kvasir_client* client, const kvasir_prompt* prompt,
                                size_t first, size_t chunk_count, uint32_t deadline_ms) {
  using staged = std::shared_ptr<stage_set>;
  if (client == nullptr || prompt == nullptr)
    return begin_wrong(no_prompt);
  return begin(deadline_ms, [&](const call_options& options) {
    return client->bytes.stage_as<staged>(prompt->names, first, chunk_count, options);
  });
}

kvasir_call* kvasir_layers_put(kvasir_layers* layers, size_t layer, const kvasir_buffer* chunks,
                               size_t chunk_count, uint32_t deadline_ms) {
  if (layers == nullptr)
    return begin_wrong("the store is NULL");
  return begin(deadline_ms, [&](const call_options& options) {
    auto staged = layers->get();
    if (!staged)
      return call<void>{caf::make_error(errc::not_reserved, "the store was committed")};
    store_call::source from;
    if (auto why = take_buffers(chunks, chunk_count, staged->size(), from))
      return call<void>{std::move(why)};
    return put_layer(staged, layer, std::move(from), options);
  });
}

kvasir_call* kvasir_layers_commit(kvasir_layers* layers, uint32_t deadline_ms) {
  if (layers == nullptr)
    return begin_wrong("the store is NULL");
  return begin(deadline_ms, [&](const call_options& options) {
    auto staged = layers->take();
    if (!staged)
      return call<store_result>{caf::make_error(errc::not_reserved, "the store was committed")};
    return commit_layers(std::move(staged), options);
  });
}

kvasir_call* kvasir_get_status(kvasir_client* client, uint32_t deadline_ms) {
  if (client == nullptr)
    return begin_wrong(no_client);
  return begin(deadline_ms,
               [&](const call_options& options) { return client->bytes.status(options); });
}

} // extern "C"
