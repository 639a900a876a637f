#include "messages/tensor_pickle.hpp"

#include <string_view>

namespace kvasir::mp {

namespace {

using namespace std::string_view_literals;

constexpr uint64_t max_list_bytes = uint64_t{1} << 62;

/// The storage class of a dtype, or "" where torch has none.
std::string_view storage_class(tensor_dtype dtype) {
  switch (dtype) {
    case tensor_dtype::float16:
      return "HalfStorage";
    case tensor_dtype::bfloat16:
      return "BFloat16Storage";
    case tensor_dtype::float32:
      return "FloatStorage";
    case tensor_dtype::float64:
      return "DoubleStorage";
    case tensor_dtype::uint8:
      return "ByteStorage";
    case tensor_dtype::int8:
      return "CharStorage";
    case tensor_dtype::int16:
      return "ShortStorage";
    case tensor_dtype::int32:
      return "IntStorage";
    case tensor_dtype::int64:
      return "LongStorage";
    case tensor_dtype::boolean:
      return "BoolStorage";
    case tensor_dtype::float8_e4m3fn:
    case tensor_dtype::float8_e5m2:
    case tensor_dtype::float8_e4m3fnuz:
    case tensor_dtype::float8_e5m2fnuz:
    case tensor_dtype::uint16:
    case tensor_dtype::uint32:
    case tensor_dtype::uint64:
      break;
  }
  return {};
}

std::string little_endian(uint64_t value, size_t size) {
  std::string result;
  for (size_t i = 0; i < size; ++i)
    result += static_cast<char>(value >> (8 * i));
  return result;
}

/// As short as pickle has it: BININT1, BININT2, BININT, LONG1. @pre below 2^63
std::string number(uint64_t value) {
  if (value < 0x100)
    return 'K' + little_endian(value, 1);
  if (value < 0x10000)
    return 'M' + little_endian(value, 2);
  if (value < 0x80000000)
    return 'J' + little_endian(value, 4);
  return "\x8a\x08" + little_endian(value, 8);
}

std::string text(std::string_view value) {
  return 'X' + little_endian(value.size(), 4) + std::string{value};
}

std::string global(std::string_view module, std::string_view name) {
  return 'c' + std::string{module} + '\n' + std::string{name} + '\n';
}

std::string tuple(std::span<const uint64_t> numbers) {
  std::string result = "(";
  for (const auto x : numbers)
    result += number(x);
  return result + 't';
}

std::string strides(std::span<const uint64_t> dims) {
  std::array<uint64_t, tensor_shape::max_rank> result{};
  uint64_t stride = 1;
  for (size_t i = dims.size(); i > 0; --i) {
    result[i - 1] = stride;
    stride *= dims[i - 1];
  }
  return tuple(std::span{result}.first(dims.size()));
}

/// What stands before the elements in torch's legacy format: magic number, version, machine,
/// storage, its key, the number of elements.
std::string storage_head(std::string_view storage, uint64_t element_count) {
  constexpr auto key = "0"sv;
  std::string result = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
                       "\x80\x02M\xe9\x03."
                       "\x80\x02}(";
  result += text("protocol_version") + number(1001) + text("little_endian") + '\x88'
            + text("type_sizes") + "}(" + text("short") + number(2) + text("int") + number(4)
            + text("long") + number(4) + "uu.";
  result += "\x80\x02(" + text("storage") + global("torch", storage) + text(key) + text("cpu")
            + number(element_count) + "NtQ.";
  result += "\x80\x02]" + text(key) + "a.";
  return result + little_endian(element_count, 8);
}

} // namespace

caf::expected<tensor_list_writer>
tensor_list_writer::make(tensor_dtype dtype, const tensor_shape& shape, size_t count) {
  const auto elements = shape.element_count();
  if (elements == 0u)
    return caf::make_error(errc::invalid_argument, "a tensor of " + to_string(shape));
  uint64_t bytes = 0;
  uint64_t all_bytes = 0;
  if (!elements || count > max_tensor_count
      || __builtin_mul_overflow(*elements, uint64_t{item_size_bytes(dtype)}, &bytes)
      || __builtin_mul_overflow(bytes, uint64_t{count}, &all_bytes)
      || all_bytes > max_list_bytes || bytes > max_list_bytes)
    return caf::make_error(errc::too_large, "a list of " + std::to_string(count)
                                              + " tensors of " + to_string(shape));
  const auto storage = storage_class(dtype);
  const auto inner
    = storage.empty() ? storage_head("ByteStorage", bytes) : storage_head(storage, *elements);
  const std::string head
    = global("torch._utils", storage.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2")
      + '(' + global("torch.storage", "_load_from_bytes") + '\x8e'
      + little_endian(inner.size() + bytes, 8) + inner;
  std::string tail = "\x85R" + number(0) + tuple(shape.dims()) + strides(shape.dims()) + '\x89'
                     + global("collections", "OrderedDict") + ")R";
  if (storage.empty())
    tail += global("torch", to_string(dtype));
  tail += "tRa";
  tensor_list_writer result;
  result.count_ = count;
  result.tensor_bytes_ = bytes;
  result.first_ = "\x80\x04]";
  if (count > 0)
    result.first_ += head;
  result.between_ = tail + head;
  result.last_ = tail + '.';
  if (count == 0)
    result.first_ += '.';
  return result;
}

std::span<const std::byte> tensor_list_writer::piece(size_t index) const {
  const auto& text = index == 0 ? first_ : index == count_ ? last_ : between_;
  return std::as_bytes(std::span{text});
}

uint64_t tensor_list_writer::total_bytes() const {
  if (count_ == 0)
    return first_.size();
  return first_.size() + (count_ - 1) * between_.size() + last_.size() + count_ * tensor_bytes_;
}

} // namespace kvasir::mp
