// What the opcodes do to the stack, the memo and the document.

#include "messages/pickle_parser.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace kvasir::mp {

namespace {

/// Tuples within tuples; a tensor list has two levels.
constexpr uint8_t max_depth = 8;

/// One list; a dict within a dict.
constexpr size_t max_containers = 4;

struct global_row {
  std::string_view module;
  std::string_view name;
  pickle_global global;
  tensor_dtype dtype;
};

constexpr std::array<global_row, 15> globals{{
  {"torch._utils", "_rebuild_tensor_v2", pickle_global::rebuild_tensor_v2, {}},
  {"torch._utils", "_rebuild_tensor_v3", pickle_global::rebuild_tensor_v3, {}},
  {"torch.storage", "_load_from_bytes", pickle_global::load_from_bytes, {}},
  {"torch.storage", "UntypedStorage", pickle_global::untyped_storage, tensor_dtype::uint8},
  {"collections", "OrderedDict", pickle_global::ordered_dict, {}},
  {"torch", "HalfStorage", pickle_global::typed_storage, tensor_dtype::float16},
  {"torch", "BFloat16Storage", pickle_global::typed_storage, tensor_dtype::bfloat16},
  {"torch", "FloatStorage", pickle_global::typed_storage, tensor_dtype::float32},
  {"torch", "DoubleStorage", pickle_global::typed_storage, tensor_dtype::float64},
  {"torch", "ByteStorage", pickle_global::typed_storage, tensor_dtype::uint8},
  {"torch", "CharStorage", pickle_global::typed_storage, tensor_dtype::int8},
  {"torch", "ShortStorage", pickle_global::typed_storage, tensor_dtype::int16},
  {"torch", "IntStorage", pickle_global::typed_storage, tensor_dtype::int32},
  {"torch", "LongStorage", pickle_global::typed_storage, tensor_dtype::int64},
  {"torch", "BoolStorage", pickle_global::typed_storage, tensor_dtype::boolean},
}};

bool is_callable(pickle_global global) {
  return global == pickle_global::rebuild_tensor_v2
         || global == pickle_global::rebuild_tensor_v3
         || global == pickle_global::load_from_bytes || global == pickle_global::ordered_dict;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A name from the stream, fit for a log line.
std::string printable(std::string_view name) {
  std::string result{name.substr(0, 64)};
  std::ranges::replace_if(
    result, [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  return result;
}

} // namespace

bool pickle_parser::push(pickle_value value) {
  if (stack_.size() >= limits_.stack)
    return refuse("too deep a stack");
  stack_.push_back(value);
  return true;
}

/// Compat: of these only the one of four bytes is signed.
bool pickle_parser::push_integer(size_t size) {
  uint64_t number = 0;
  if (!take_number(size, number))
    return false;
  const auto value = size == 4 ? int64_t{static_cast<int32_t>(static_cast<uint32_t>(number))}
                               : static_cast<int64_t>(number);
  return push({.kind = pickle_kind::integer, .first = value});
}

/// Two's complement of any length; none is 0.
bool pickle_parser::push_long() {
  uint64_t size = 0;
  std::span<const std::byte> bytes;
  if (!take_number(1, size) || !take(size, bytes))
    return false;
  if (size > 8)
    return push({.kind = pickle_kind::long_integer,
                 .first = static_cast<int64_t>(position_ - bytes.size()),
                 .size = size});
  uint64_t number
    = size > 0 && (bytes.back() & std::byte{0x80}) != std::byte{} ? UINT64_MAX : 0;
  for (size_t i = bytes.size(); i > 0; --i)
    number = number << 8 | std::to_integer<uint64_t>(bytes[i - 1]);
  return push({.kind = pickle_kind::integer, .first = static_cast<int64_t>(number)});
}

bool pickle_parser::push_bytes(pickle_kind kind, size_t length_size) {
  uint64_t size = 0;
  std::span<const std::byte> bytes;
  if (!take_number(length_size, size) || !take(size, bytes))
    return false;
  return push(
    {.kind = kind, .first = static_cast<int64_t>(position_ - bytes.size()), .size = size});
}

bool pickle_parser::push_container(pickle_kind kind) {
  if (document_.containers_.size() >= max_containers)
    return refuse("too many lists or dicts");
  document_.containers_.emplace_back();
  return push({.kind = kind, .first = static_cast<int64_t>(document_.containers_.size() - 1)});
}

/// Of the `count` topmost values.
bool pickle_parser::push_tuple(size_t count) {
  if (!need(count))
    return false;
  const auto from = stack_.end() - static_cast<std::ptrdiff_t>(count);
  pickle_value tuple{.kind = pickle_kind::tuple,
                     .first = static_cast<int64_t>(document_.items_.size()),
                     .size = count};
  for (auto item = from; item != stack_.end(); ++item)
    tuple.depth = std::max(tuple.depth, item->depth);
  if (++tuple.depth > max_depth)
    return refuse("too many tuples within tuples");
  document_.items_.insert(document_.items_.end(), from, stack_.end());
  stack_.erase(from, stack_.end());
  return push(tuple);
}

bool pickle_parser::push_global(std::string_view module, std::string_view name) {
  for (const auto& row : globals)
    if (row.module == module && row.name == name)
      return push({.kind = pickle_kind::global, .global = row.global, .dtype = row.dtype});
  if (module == "torch")
    if (const auto dtype = tensor_dtype_from_name(name))
      return push(
        {.kind = pickle_kind::global, .global = pickle_global::dtype, .dtype = *dtype});
  return refuse("global \"" + printable(module) + " " + printable(name)
                + "\" is not one of a tensor list's");
}

bool pickle_parser::push_named_global() {
  if (!need(2))
    return false;
  const auto name = stack_.back();
  const auto module = stack_[stack_.size() - 2];
  if (module.kind != pickle_kind::text || name.kind != pickle_kind::text)
    return refuse("the name of a global is no text");
  stack_.resize(stack_.size() - 2);
  return push_global(as_text(document_.bytes(module)), as_text(document_.bytes(name)));
}

bool pickle_parser::push_memo(size_t index_size) {
  uint64_t index = 0;
  if (!take_number(index_size, index))
    return false;
  if (index >= memo_.size())
    return refuse("nothing is memoized under " + std::to_string(index));
  return push(memo_[index]);
}

bool pickle_parser::memoize() {
  if (!need(1))
    return false;
  memo_.push_back(stack_.back());
  return true;
}

/// Picklers number what they memoize in sequence; a gap would need room for what is not there.
bool pickle_parser::memoize_at(size_t index_size) {
  uint64_t index = 0;
  if (!take_number(index_size, index))
    return false;
  if (index != memo_.size())
    return refuse("memo " + std::to_string(index) + " is out of sequence");
  return memoize();
}

/// @post `count` values above it, which are usable now.
bool pickle_parser::pop_mark(size_t& count) {
  if (marks_.empty())
    return refuse("no mark");
  count = usable();
  marks_.pop_back();
  return true;
}

/// Moves the `count` topmost values into the container below them.
bool pickle_parser::append(pickle_kind kind, size_t count) {
  if (!need(count + 1))
    return false;
  const auto from = stack_.end() - static_cast<std::ptrdiff_t>(count);
  const auto target = *(from - 1);
  if (target.kind != kind || (kind == pickle_kind::dict && count % 2 != 0))
    return refuse("items for something else than a list or dict");
  auto& items = document_.containers_[static_cast<size_t>(target.first)];
  items.insert(items.end(), from, stack_.end());
  stack_.erase(from, stack_.end());
  return true;
}

bool pickle_parser::append_to_mark(pickle_kind kind) {
  size_t count = 0;
  return pop_mark(count) && append(kind, count);
}

bool pickle_parser::reduce() {
  if (!need(2))
    return false;
  auto call = stack_.back();
  const auto callee = stack_[stack_.size() - 2];
  if (callee.kind != pickle_kind::global || !is_callable(callee.global)
      || call.kind != pickle_kind::tuple)
    return refuse("a call of something that may not be called");
  call.kind = pickle_kind::call;
  call.global = callee.global;
  stack_.pop_back();
  stack_.back() = call;
  return true;
}

bool pickle_parser::persistent_id() {
  if (!need(1))
    return false;
  if (stack_.back().kind != pickle_kind::tuple)
    return refuse("a persistent id that is no tuple");
  stack_.back().kind = pickle_kind::persistent_id;
  return true;
}

bool pickle_parser::finish() {
  if (stack_.size() != 1 || !marks_.empty())
    return refuse("another number of values than one");
  document_.root_ = stack_.front();
  document_.end_ = position_;
  return true;
}

bool pickle_parser::need(size_t count) {
  return usable() >= count || refuse("too few values on the stack");
}

size_t pickle_parser::usable() const {
  return stack_.size() - (marks_.empty() ? 0 : marks_.back());
}

} // namespace kvasir::mp
