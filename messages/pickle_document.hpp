// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/tensor_type.hpp"

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// A pickle stream as plain data: what it would have built, without building or calling
/// anything. Knows only what a list of tensors is made of; every other opcode and every other
/// global is refused. Calls become values that say what would have been called with what.
///
/// Threading: values. No exception, no recursion; memory by the limits below, never by a length
/// in the stream.
/// Source: CPython 3.11 `pickletools.py`; PyTorch 2.11 `torch/_utils.py`, `torch/storage.py`.
namespace kvasir::mp {

enum class pickle_kind : uint8_t {
  none,
  boolean,
  integer,      ///< Fits into 64 bits.
  long_integer, ///< Longer; its bytes.
  text,
  bytes,
  global,
  tuple,
  list,
  dict,
  call,          ///< Of `global` with the items as arguments.
  persistent_id, ///< With the items of its tuple.
};

/// The globals that may occur.
enum class pickle_global : uint8_t {
  none,
  rebuild_tensor_v2, ///< torch._utils _rebuild_tensor_v2
  rebuild_tensor_v3, ///< torch._utils _rebuild_tensor_v3
  load_from_bytes,   ///< torch.storage _load_from_bytes
  ordered_dict,      ///< collections OrderedDict
  untyped_storage,   ///< torch.storage UntypedStorage
  typed_storage,     ///< torch HalfStorage and the like; `dtype` says which.
  dtype,             ///< torch float8_e4m3fn and the like; `dtype` says which.
};

struct pickle_value {
  pickle_kind kind = pickle_kind::none;
  uint8_t depth = 0; ///< Tuples within tuples.
  pickle_global global = pickle_global::none;
  tensor_dtype dtype = tensor_dtype::uint8;
  /// A number (of `integer`, `boolean`), or where bytes start in the input, or an index into
  /// the document.
  int64_t first = 0;
  uint64_t size = 0; ///< Bytes, or items of a tuple, call or persistent_id.
};

/// Bounds on work and memory, whatever the input is.
struct pickle_limits {
  size_t operations; ///< Opcodes of one stream; also bounds the memo and all items.
  size_t stack;      ///< Values on the stack.
};

class pickle_document {
public:
  /// Reads the stream that starts at `position` of `input`, which must outlive the document.
  /// @returns `errc::malformed_frame` with what was refused and where.
  static caf::expected<pickle_document> parse(std::span<const std::byte> input, size_t position,
                                              const pickle_limits& limits);

  const pickle_value& root() const { return root_; }

  /// Where the stream ended, behind STOP.
  size_t end() const { return end_; }

  /// The items of a tuple, list, call or persistent_id; of a dict, keys and values in turn.
  /// Empty for any other value.
  std::span<const pickle_value> items(const pickle_value& value) const;

  /// The bytes of a text, bytes or long_integer. Empty for any other value.
  std::span<const std::byte> bytes(const pickle_value& value) const;

  /// Is it this text?
  bool is_text(const pickle_value& value, std::string_view text) const;

private:
  friend class pickle_parser;

  std::span<const std::byte> input_;
  std::vector<pickle_value> items_;                   ///< Of tuples, one after the other.
  std::vector<std::vector<pickle_value>> containers_; ///< Lists and dicts.
  pickle_value root_;
  size_t end_ = 0;
};

} // namespace kvasir::mp
