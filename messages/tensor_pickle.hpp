// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/errc.hpp"
#include "messages/tensor_type.hpp"

#include <caf/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// The tensors that an engine sends inline where shared memory is not to be had: Python's
/// `pickle.dumps` of a list of torch tensors on the CPU. Read without executing anything, and
/// written so that Python's `pickle.loads` gives tensors.
///
/// Threading: pure functions and values.
/// Source: LMCache 0.5.6 `server_transfer.py`; PyTorch 2.11 `torch/_utils.py`,
/// `torch/serialization.py` (legacy save); recorded in `tests/golden/mp/pickle_payload.json`.
namespace kvasir::mp {

/// More tensors than any list has: chunks of 16 tokens each for 128 k tokens.
inline constexpr size_t max_tensor_count = 8192;

/// One tensor of a list. Its elements lie row-major and contiguous in the bytes that were read.
struct tensor_view {
  tensor_dtype dtype = tensor_dtype::uint8;
  tensor_shape shape;
  size_t offset_bytes = 0; ///< From the start of those bytes; not aligned.
  size_t size_bytes = 0;   ///< Exactly what dtype and shape say.
};

/// Finds the tensors in `pickle`; copies none of their bytes.
///
/// Any bytes may be given. Memory stays below 32 MB, and below 100 bytes for each byte that the
/// stream has beside its tensors; time is linear in that too.
/// @returns views into `pickle`, or, with a context that says what was refused,
///   - `errc::malformed_frame` if it is anything else than a list of tensors: other opcodes,
///     globals or calls, big-endian data, gradients, a storage with another number of bytes
///     than it says, a view that is not within its storage,
///   - `errc::layout_mismatch` if a tensor is not contiguous and row-major, or has more than
///     `tensor_shape::max_rank` dimensions,
///   - `errc::too_large` for more than `max_tensor_count` tensors.
caf::expected<std::vector<tensor_view>> read_tensor_list(std::span<const std::byte> pickle);

/// Writes a list of tensors of one dtype and shape around bytes that lie elsewhere: constant
/// pieces, to be sent in turn with the raw bytes of the tensors.
///
///   piece(0) | tensor 0 | piece(1) | tensor 1 | ... | piece(count)
///
/// Compat: PyTorch 2.11 cannot load its own pickle of float8 and of unsigned types above 8
/// bits. It loads this one, which has their bytes in a storage of uint8.
class tensor_list_writer {
public:
  /// @returns
  ///   - `errc::invalid_argument` if a dimension is 0,
  ///   - `errc::too_large` if the list exceeds 2^62 bytes or `max_tensor_count` tensors.
  static caf::expected<tensor_list_writer> make(tensor_dtype dtype, const tensor_shape& shape,
                                                size_t count);

  size_t tensor_count() const { return count_; }

  /// Bytes of each tensor.
  uint64_t tensor_bytes() const { return tensor_bytes_; }

  /// What comes before tensor `index`, or behind the last one.
  /// @pre `index <= tensor_count()`
  /// The bytes live as long as this writer, and stay where they are unless it is moved.
  std::span<const std::byte> piece(size_t index) const;

  /// Of the whole list: all pieces and all tensors.
  uint64_t total_bytes() const;

private:
  tensor_list_writer() = default;

  size_t count_ = 0;
  uint64_t tensor_bytes_ = 0;
  std::string first_;
  std::string between_;
  std::string last_;
};

} // namespace kvasir::mp
