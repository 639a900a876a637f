#include "messages/mp_reply.hpp"

#include <msgpack.hpp>

#include <limits>

namespace kvasir::mp {

namespace {

/// Where msgpack's packer writes to.
struct text_buffer {
  std::string text;

  void write(const char* data, size_t size) { text.append(data, size); }
};

using packer = msgpack::packer<text_buffer>;

void pack_text(packer& to, std::string_view text) {
  to.pack_str(static_cast<uint32_t>(text.size()));
  to.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
}

void pack_slots(packer& to, std::span<const slot> slots, const kv_layout& layout) {
  pack_text(to, "slots");
  to.pack_array(static_cast<uint32_t>(slots.size()));
  auto shape = layout.shape();
  for (auto& where : slots) {
    to.pack_map(4);
    pack_text(to, "offset");
    to.pack_uint64(where.offset_bytes);
    pack_text(to, "length");
    to.pack_uint64(where.size_bytes);
    pack_text(to, "shape");
    to.pack_array(static_cast<uint32_t>(shape.dims().size()));
    for (auto dim : shape.dims())
      to.pack_uint64(dim);
    pack_text(to, "dtype");
    pack_text(to, to_string(layout.dtype));
  }
}

/// A map of success, data and context up to the data.
void pack_retrieve_head(packer& to, bool success, uint32_t data_bytes) {
  to.pack_map(3);
  pack_text(to, "success");
  success ? to.pack_true() : to.pack_false();
  pack_text(to, "data");
  to.pack_bin(data_bytes);
}

void pack_context(packer& to, std::span<const slot> slots, const kv_layout& layout) {
  pack_text(to, "context");
  to.pack_map(slots.empty() ? 0 : 1);
  if (!slots.empty())
    pack_slots(to, slots, layout);
}

template <class Pack>
std::string packed(Pack pack) {
  text_buffer buffer;
  packer to{buffer};
  pack(to);
  return std::move(buffer.text);
}

} // namespace

std::string encode_uint(uint64_t value) {
  return packed([&](packer& to) { to.pack_uint64(value); });
}

std::string encode_bool(bool value) {
  return packed([&](packer& to) { value ? to.pack_true() : to.pack_false(); });
}

std::string encode_text(std::string_view text) {
  return packed([&](packer& to) { pack_text(to, text); });
}

std::string encode_texts(std::span<const std::string_view> texts) {
  return packed([&](packer& to) {
    to.pack_array(static_cast<uint32_t>(texts.size()));
    for (auto text : texts)
      pack_text(to, text);
  });
}

std::string encode_registration(std::string_view shm_name, uint64_t pool_bytes) {
  return packed([&](packer& to) {
    to.pack_map(2);
    pack_text(to, "shm_name");
    pack_text(to, shm_name);
    pack_text(to, "pool_size");
    to.pack_uint64(pool_bytes);
  });
}

std::string encode_no_buffers() {
  return packed([&](packer& to) {
    to.pack_map(1);
    pack_text(to, "context");
    to.pack_map(0);
  });
}

std::string encode_store_slots(std::span<const slot> slots, std::span<const uint32_t> indices,
                               const kv_layout& layout) {
  return packed([&](packer& to) {
    to.pack_map(1);
    pack_text(to, "context");
    to.pack_map(2);
    pack_slots(to, slots, layout);
    pack_text(to, "chunk_indices");
    to.pack_array(static_cast<uint32_t>(indices.size()));
    for (auto index : indices)
      to.pack_uint32(index);
  });
}

std::string encode_retrieve_failed() {
  return packed([&](packer& to) {
    pack_retrieve_head(to, false, 0);
    pack_context(to, {}, {});
  });
}

std::string encode_retrieve_slots(std::span<const slot> slots, const kv_layout& layout) {
  return packed([&](packer& to) {
    pack_retrieve_head(to, true, 0);
    pack_context(to, slots, layout);
  });
}

std::string encode_no_events() {
  return packed([](packer& to) {
    to.pack_map(5);
    pack_text(to, "enabled");
    to.pack_false();
    pack_text(to, "incarnation");
    to.pack_uint64(0);
    pack_text(to, "next_cursor");
    to.pack_uint64(0);
    pack_text(to, "lost");
    to.pack_false();
    pack_text(to, "events");
    to.pack_array(0);
  });
}

std::string encode_event_batch(std::string_view model, const kv_event_batch& batch) {
  auto pack_hash = [](packer& to, std::string_view hash) {
    to.pack_bin(static_cast<uint32_t>(hash.size()));
    to.pack_bin_body(hash.data(), static_cast<uint32_t>(hash.size()));
  };
  return packed([&](packer& to) {
    to.pack_map(5);
    pack_text(to, "enabled");
    to.pack_true();
    pack_text(to, "incarnation");
    to.pack_uint64(batch.incarnation);
    pack_text(to, "next_cursor");
    to.pack_uint64(batch.next_cursor);
    pack_text(to, "lost");
    batch.lost ? to.pack_true() : to.pack_false();
    pack_text(to, "events");
    to.pack_array(static_cast<uint32_t>(batch.events.size()));
    for (auto& event : batch.events) {
      to.pack_map(7);
      pack_text(to, "seq");
      to.pack_uint64(event.seq);
      pack_text(to, "kind");
      pack_text(to, event.stored ? "stored" : "removed");
      pack_text(to, "medium");
      pack_text(to, "CPU");
      pack_text(to, "model_name");
      pack_text(to, model);
      pack_text(to, "block_hashes");
      to.pack_array(1);
      pack_hash(to, event.block_hash);
      pack_text(to, "parent_block_hash");
      event.parent_block_hash.empty() ? (void)to.pack_nil()
                                      : pack_hash(to, event.parent_block_hash);
      pack_text(to, "token_ids");
      to.pack_array(static_cast<uint32_t>(event.tokens.size()));
      for (auto token : event.tokens)
        to.pack_uint32(token);
    }
  });
}

caf::expected<retrieve_frame> encode_retrieve_data(uint64_t data_bytes,
                                                   std::span<const slot> slots,
                                                   const kv_layout& layout) {
  if (data_bytes > std::numeric_limits<uint32_t>::max())
    return caf::make_error(errc::too_large);
  return retrieve_frame{packed([&](packer& to) {
                          pack_retrieve_head(to, true, static_cast<uint32_t>(data_bytes));
                        }),
                        packed([&](packer& to) { pack_context(to, slots, layout); })};
}

} // namespace kvasir::mp
