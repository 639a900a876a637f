#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// MP messages as the benchmark writes and reads them. Deliberately not the codec of
/// `messages/`: a load generator that shares the server's codec shares its mistakes.
namespace kvasir::bench::mp {

/// The numbers of the operations that the benchmark uses.
enum class operation : std::uint8_t {
  lookup = 8,
  wait_prefetch_status = 10,
  free_lookup_locks = 12,
  end_session = 13,
  register_context = 14,
  unregister_context = 15,
  prepare_store = 16,
  commit_store = 17,
  prepare_retrieve = 18,
  commit_retrieve = 19,
  clear = 20,
  get_chunk_size = 21,
  ping = 22,
};

/// Float16 chunks of `[2, layers, chunk_tokens, hidden]`, K and V of every layer.
struct layout {
  std::size_t chunk_tokens = 256;
  std::size_t hidden = 1024;

  static constexpr std::size_t layers = 32;

  std::size_t chunk_bytes() const { return 2 * layers * chunk_tokens * hidden * 2; }
};

/// What most operations are about: the whole prompt, from its first token to its last.
struct prompt {
  std::string_view model;
  std::span<const std::uint32_t> tokens;
  std::string_view request_id;
};

// One frame each.
std::string encode_operation(operation what);
std::string encode_nil();
std::string encode(bool value);
std::string encode(std::uint64_t value);
std::string encode(double value);
std::string encode(std::string_view text);

/// The key as a scheduler sends it, for all ranks.
std::string encode_lookup_key(const prompt& about);

/// The key as the only worker sends it.
std::string encode_worker_key(const prompt& about);

std::string encode_registration(std::uint64_t instance_id, std::string_view model,
                                const layout& shape);

/// The frame around the raw bytes of one chunk in an inline `commit_store`: the head of a msgpack
/// binary and Python's pickle of a list of one tensor.
struct inline_envelope {
  std::string head;
  std::string tail;
};

inline_envelope make_inline_envelope(const layout& shape);

/// The raw bytes in the pickle of a list of one float16 tensor, as LMCache's server and kvasird
/// write it; none if there are fewer.
std::optional<std::string_view> find_inline_chunk(std::string_view pickle,
                                                  std::size_t chunk_bytes);

struct segment_info {
  std::string name; ///< Empty: the server sends and takes chunks inline.
  std::size_t size_bytes = 0;
};

struct slot {
  std::size_t offset = 0;
  std::size_t length = 0;
};

/// The answer to `prepare_retrieve`; `data` points into the frame.
struct prepared_retrieve {
  bool success = false;
  std::string_view data;
  std::vector<slot> slots;
};

// None if the frame is something else.
std::optional<std::uint64_t> decode_unsigned(std::string_view frame);
bool decode_true(std::string_view frame);
std::optional<segment_info> decode_segment(std::string_view frame);
std::optional<std::vector<slot>> decode_prepared_store(std::string_view frame);
std::optional<prepared_retrieve> decode_prepared_retrieve(std::string_view frame);

} // namespace kvasir::bench::mp
