#include "messages/kv_layout.hpp"

#include "messages/digest.hpp"

#include <optional>

namespace kvasir::mp {

namespace {

/// The format code of chunks; those of lm:// are small.
constexpr int32_t chunk_format = 0x100;

std::optional<uint64_t> checked_chunk_bytes(const kv_layout& layout) {
  const auto elements = layout.shape().element_count();
  uint64_t bytes = 0;
  if (!elements
      || __builtin_mul_overflow(*elements, uint64_t{item_size_bytes(layout.dtype)}, &bytes)
      || bytes > max_chunk_bytes)
    return std::nullopt;
  return bytes;
}

/// The name of a count that is 0, or nullptr.
const char* first_zero(const kv_layout& layout) {
  if (layout.layers == 0)
    return "num_layers is 0";
  if (layout.slots == 0)
    return "num_physical_slots is 0";
  if (layout.hidden == 0)
    return "hidden_dim_size is 0";
  if (layout.block_size == 0)
    return "block_size is 0";
  return nullptr;
}

} // namespace

tensor_shape kv_layout::shape() const {
  const uint64_t dims[] = {2, layers, slots, hidden};
  return tensor_shape{std::span{dims}.subspan(single_plane ? 1 : 0)};
}

uint64_t kv_layout::chunk_bytes() const {
  return *checked_chunk_bytes(*this);
}

uint64_t kv_layout::digest() const {
  const auto text = std::string{to_string(dtype)} + to_string(shape());
  return digest64(std::as_bytes(std::span{text}), 0);
}

caf::expected<kv_layout> make_kv_layout(const kv_layout& wanted) {
  if (const auto* zero = first_zero(wanted))
    return caf::make_error(errc::invalid_argument, std::string{zero});
  if (!checked_chunk_bytes(wanted))
    return caf::make_error(errc::too_large, "a chunk of " + std::string{to_string(wanted.dtype)}
                                              + to_string(wanted.shape())
                                              + " exceeds 2^40 bytes");
  return wanted;
}

object_layout stored_layout(const kv_layout& layout) {
  object_layout result;
  result.format = chunk_format;
  result.dtype = static_cast<int32_t>(layout.dtype);
  auto shape = layout.shape();
  for (size_t i = 0; i < shape.dims().size() && i < result.shape.size(); ++i)
    result.shape[i] = static_cast<int32_t>(shape.dims()[i]);
  return result;
}

} // namespace kvasir::mp
