#include "arrays.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace kvasir_python {

namespace {

using code = nb::dlpack::dtype_code;

struct dtype_row {
  const char* name;
  uint32_t dtype;
  code kind;
  uint8_t bits;
};

/// Names are torch's, kinds DLPack's.
constexpr std::array dtypes{
  dtype_row{"float16", KVASIR_FLOAT16, code::Float, 16},
  dtype_row{"bfloat16", KVASIR_BFLOAT16, code::Bfloat, 16},
  dtype_row{"float32", KVASIR_FLOAT32, code::Float, 32},
  dtype_row{"float64", KVASIR_FLOAT64, code::Float, 64},
  dtype_row{"float8_e4m3fn", KVASIR_FLOAT8_E4M3FN, code::Float8_E4M3FN, 8},
  dtype_row{"float8_e5m2", KVASIR_FLOAT8_E5M2, code::Float8_E5M2, 8},
  dtype_row{"float8_e4m3fnuz", KVASIR_FLOAT8_E4M3FNUZ, code::Float8_E4M3FNUZ, 8},
  dtype_row{"float8_e5m2fnuz", KVASIR_FLOAT8_E5M2FNUZ, code::Float8_E5M2FNUZ, 8},
  dtype_row{"uint8", KVASIR_UINT8, code::UInt, 8},
  dtype_row{"int8", KVASIR_INT8, code::Int, 8},
  dtype_row{"int16", KVASIR_INT16, code::Int, 16},
  dtype_row{"int32", KVASIR_INT32, code::Int, 32},
  dtype_row{"int64", KVASIR_INT64, code::Int, 64},
  dtype_row{"bool", KVASIR_BOOL, code::Bool, 8},
  dtype_row{"uint16", KVASIR_UINT16, code::UInt, 16},
  dtype_row{"uint32", KVASIR_UINT32, code::UInt, 32},
  dtype_row{"uint64", KVASIR_UINT64, code::UInt, 64},
};

const dtype_row& row_of(uint32_t dtype) {
  return *std::find_if(dtypes.begin(), dtypes.end(),
                       [dtype](const dtype_row& row) { return row.dtype == dtype; });
}

std::string name_of(nb::dlpack::dtype dtype) {
  for (auto& row : dtypes)
    if (static_cast<uint8_t>(row.kind) == dtype.code && row.bits == dtype.bits)
      return row.name;
  return "DLPack's type " + std::to_string(dtype.code) + " of " + std::to_string(dtype.bits)
         + " bits";
}

/// numpy has neither float8 nor bfloat16: unsigned integers of the same width stand for them.
bool is_of(const dtype_row& row, nb::dlpack::dtype dtype) {
  if (dtype.bits != row.bits || dtype.lanes != 1)
    return false;
  const auto given = static_cast<code>(dtype.code);
  const auto unknown_to_numpy = row.kind != code::Int && row.kind != code::UInt
                                && row.kind != code::Float && row.kind != code::Bool;
  return given == row.kind || (unknown_to_numpy && given == code::UInt);
}

template <class Sizes>
std::string text_of(size_t rank, Sizes size) {
  std::string result = "[";
  for (size_t i = 0; i < rank; ++i)
    result += (i == 0 ? "" : ", ") + std::to_string(size(i));
  return result + "]";
}

template <class Array>
bool is_contiguous(const Array& array) {
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected)
      return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

template <class Array>
void check(const Array& array, const std::string& name, uint32_t dtype,
           const std::vector<size_t>& shape) {
  if (array.device_type() != nb::device::cpu::value)
    raise(KVASIR_INVALID_ARGUMENT, name + " is not in the CPU's memory");
  if (!is_of(row_of(dtype), array.dtype()))
    raise(KVASIR_LAYOUT_MISMATCH,
          name + " is of " + name_of(array.dtype()) + ", not " + row_of(dtype).name);
  auto same = array.ndim() == shape.size();
  for (size_t i = 0; same && i < shape.size(); ++i)
    same = array.shape(i) == shape[i];
  if (!same)
    raise(KVASIR_LAYOUT_MISMATCH,
          name + " is of shape "
            + text_of(array.ndim(), [&](size_t i) { return array.shape(i); }) + ", not "
            + text_of(shape.size(), [&](size_t i) { return shape[i]; }));
  if (!is_contiguous(array))
    raise(KVASIR_INVALID_ARGUMENT, name + " is not contiguous");
}

template <class Integer>
bool take_tokens(nb::ndarray<nb::ro> array, std::vector<uint32_t>& tokens) {
  if (array.dtype() != nb::dtype<Integer>())
    return false;
  auto data = static_cast<const Integer*>(array.data());
  tokens.resize(array.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!std::in_range<uint32_t>(data[i]))
      raise(KVASIR_INVALID_ARGUMENT, "token " + std::to_string(i) + " is "
                                       + std::to_string(data[i]) + ", not 0 to 2^32 - 1");
    tokens[i] = static_cast<uint32_t>(data[i]);
  }
  return true;
}

} // namespace

uint32_t dtype_from_name(const std::string& name) {
  for (auto& row : dtypes)
    if (row.name == name)
      return row.dtype;
  raise(KVASIR_INVALID_ARGUMENT, "there is no dtype " + name);
}

array_bytes::array_bytes(nb::sequence arrays, uint32_t dtype, const std::vector<size_t>& shape,
                         use how) {
  const auto count = nb::len(arrays);
  owners_.reserve(count);
  buffers_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    nb::object from = arrays[i];
    if (how == use::read)
      add<nb::ndarray<nb::ro>>(from, dtype, shape);
    else
      add<nb::ndarray<>>(from, dtype, shape);
  }
}

template <class Array>
void array_bytes::add(nb::handle from, uint32_t dtype, const std::vector<size_t>& shape) {
  const auto name = "array " + std::to_string(buffers_.size());
  Array array;
  if (!nb::try_cast(from, array, false) || !array.is_valid())
    raise(KVASIR_INVALID_ARGUMENT,
          name + " gives no memory that can be used: it is no array, or read-only");
  check(array, name, dtype, shape);
  buffers_.push_back(
    {const_cast<void*>(static_cast<const void*>(array.data())), array.nbytes()});
  owners_.emplace_back(array);
}

std::vector<uint32_t> tokens_of(nb::handle from) {
  std::vector<uint32_t> tokens;
  nb::ndarray<nb::ro> array;
  if (nb::try_cast(from, array, false) && array.is_valid()) {
    if (array.ndim() != 1 || array.device_type() != nb::device::cpu::value
        || !is_contiguous(array)
        || !(take_tokens<int64_t>(array, tokens) || take_tokens<int32_t>(array, tokens)
             || take_tokens<uint32_t>(array, tokens) || take_tokens<uint64_t>(array, tokens)))
      raise(
        KVASIR_INVALID_ARGUMENT,
        "tokens are one dimension of 32 or 64 bit integers in the CPU's memory, contiguous");
    return tokens;
  }
  for (auto each : nb::iter(from)) {
    uint32_t token = 0;
    if (!nb::try_cast(each, token))
      raise(KVASIR_INVALID_ARGUMENT,
            "token " + std::to_string(tokens.size()) + " is no integer of 0 to 2^32 - 1");
    tokens.push_back(token);
  }
  return tokens;
}

nb::object array_over(kvasir_chunk* chunk, const array_layout& layout) {
  nb::capsule owner{chunk, [](void* held) noexcept {
                      kvasir_chunk_free(static_cast<kvasir_chunk*>(held));
                    }};
  auto& row = row_of(layout.dtype);
  nb::ndarray<nb::ro, nb::array_api> array{kvasir_chunk_data(chunk),
                                           layout.chunk_shape.size(),
                                           layout.chunk_shape.data(),
                                           owner,
                                           nullptr,
                                           {static_cast<uint8_t>(row.kind), row.bits, 1},
                                           nb::device::cpu::value};
  return array.cast(nb::rv_policy::reference);
}

} // namespace kvasir_python
