// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/event_messages.hpp"
#include "messages/kv_layout.hpp"
#include "messages/object.hpp"

#include <caf/expected.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The result frames of the MP protocol, byte for byte as LMCache's server writes them.
///
/// Threading: pure functions.
namespace kvasir::mp {

std::string encode_uint(uint64_t value);
std::string encode_bool(bool value);
std::string encode_text(std::string_view text);
std::string encode_texts(std::span<const std::string_view> texts);

/// The answer to a registration. An empty name: chunks travel inline.
std::string encode_registration(std::string_view shm_name, uint64_t pool_bytes);

/// prepare_store: the client gathers into memory of its own.
std::string encode_no_buffers();

/// prepare_store: write the chunks at `indices` of the range into these slots. Both empty: there is
/// nothing to store.
std::string encode_store_slots(std::span<const slot> slots, std::span<const uint32_t> indices,
                               const kv_layout& layout);

std::string encode_retrieve_failed();

/// prepare_retrieve: a slot for each chunk of the range, in order.
std::string encode_retrieve_slots(std::span<const slot> slots, const kv_layout& layout);

/// prepare_retrieve with data: head | data_bytes of data | tail.
struct retrieve_frame {
  std::string head;
  std::string tail;
};

/// @param slots told as well, if not empty
/// @returns the frame, or `errc::too_large` for 4 GiB and more: msgpack cannot say their length.
caf::expected<retrieve_frame>
encode_retrieve_data(uint64_t data_bytes, std::span<const slot> slots, const kv_layout& layout);

/// One push of an event stream.
std::string encode_event_batch(std::string_view model, const kv_event_batch& batch);

/// Instead of a first one: there is no stream, the client is to tell of its own stores itself.
std::string encode_no_events();

} // namespace kvasir::mp
