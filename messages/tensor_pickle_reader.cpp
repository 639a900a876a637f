#include "messages/pickle_document.hpp"
#include "messages/tensor_pickle.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

namespace kvasir::mp {

namespace {

static_assert(std::endian::native == std::endian::little, "integers are copied as they are");

/// PyTorch spends 35 opcodes on a tensor of four dimensions; picklers put up to 1000 items on
/// the stack before they append them.
constexpr pickle_limits outer_limits{48 * max_tensor_count, 2048};

/// The longest of the five streams of a storage has 28 opcodes.
constexpr pickle_limits inner_limits{64, 32};

/// 0x1950a86a20f9469cfc6c, the magic number of torch's legacy format.
constexpr std::array<uint8_t, 10> legacy_magic{0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                               0x20, 0x6a, 0xa8, 0x50, 0x19};
constexpr int64_t legacy_version = 1001;

struct storage {
  tensor_dtype dtype = tensor_dtype::uint8; ///< uint8 also for an untyped one.
  size_t offset_bytes = 0;
  size_t size_bytes = 0;
};

caf::error refuse(errc code, const char* what) {
  return caf::make_error(code, std::string{"tensor list: "} + what);
}

caf::error malformed(const char* what) {
  return refuse(errc::malformed_frame, what);
}

bool is_integer(const pickle_value& value, int64_t number) {
  return value.kind == pickle_kind::integer && value.first == number;
}

bool is_boolean(const pickle_value& value, bool truth) {
  return value.kind == pickle_kind::boolean && (value.first != 0) == truth;
}

bool is_call(const pickle_value& value, pickle_global global, size_t argument_count) {
  return value.kind == pickle_kind::call && value.global == global
         && value.size == argument_count;
}

/// A number that may be a size, offset or dimension.
std::optional<uint64_t> as_size(const pickle_value& value) {
  if (value.kind != pickle_kind::integer || value.first < 0)
    return std::nullopt;
  return static_cast<uint64_t>(value.first);
}

/// The bytes of torch's legacy format: five pickle streams, an int64, the elements.
class storage_reader {
public:
  storage_reader(std::span<const std::byte> input, size_t position)
    : input_(input),
      position_(position) {}

  caf::expected<storage> read() {
    if (auto error = read_head())
      return error;
    auto id = next_stream();
    if (!id)
      return std::move(id.error());
    auto keys = next_stream();
    if (!keys)
      return std::move(keys.error());
    return read_elements(*id, *keys);
  }

private:
  caf::expected<pickle_document> next_stream() {
    auto result = pickle_document::parse(input_, position_, inner_limits);
    if (result)
      position_ = result->end();
    return result;
  }

  /// Magic number, version, and what the writer's machine is like.
  caf::error read_head() {
    const auto magic = next_stream();
    if (!magic)
      return magic.error();
    const auto magic_bytes = magic->bytes(magic->root());
    if (magic->root().kind != pickle_kind::long_integer
        || magic_bytes.size() != legacy_magic.size()
        || std::memcmp(magic_bytes.data(), legacy_magic.data(), legacy_magic.size()) != 0)
      return malformed("another magic number of the storage");
    const auto version = next_stream();
    if (!version)
      return version.error();
    if (!is_integer(version->root(), legacy_version))
      return malformed("another version of the storage");
    const auto machine = next_stream();
    if (!machine)
      return machine.error();
    return check_machine(*machine);
  }

  /// {"protocol_version": 1001, "little_endian": True, "type_sizes": {...}}
  caf::error check_machine(const pickle_document& machine) {
    const auto items = machine.items(machine.root());
    if (machine.root().kind != pickle_kind::dict)
      return malformed("the storage does not describe its machine");
    bool little_endian = false;
    for (size_t i = 0; i < items.size(); i += 2)
      if (machine.is_text(items[i], "little_endian"))
        little_endian = is_boolean(items[i + 1], true);
    if (!little_endian)
      return malformed("the storage is not little-endian");
    return {};
  }

  /// `id` is ("storage", class, key, "cpu", element count, None), `keys` [key].
  caf::expected<storage> read_elements(const pickle_document& id, const pickle_document& keys) {
    const auto fields = id.items(id.root());
    if (id.root().kind != pickle_kind::persistent_id || fields.size() != 6
        || !id.is_text(fields[0], "storage") || !id.is_text(fields[3], "cpu")
        || fields[2].kind != pickle_kind::text || fields[5].kind != pickle_kind::none)
      return malformed("no storage on the CPU");
    if (fields[1].kind != pickle_kind::global
        || (fields[1].global != pickle_global::typed_storage
            && fields[1].global != pickle_global::untyped_storage))
      return malformed("another class of storage");
    const auto key_list = keys.items(keys.root());
    const auto key = id.bytes(fields[2]);
    if (keys.root().kind != pickle_kind::list || key_list.size() != 1
        || !keys.is_text(key_list[0], {reinterpret_cast<const char*>(key.data()), key.size()}))
      return malformed("elements of another storage");
    return check_size(fields[1].dtype, as_size(fields[4]));
  }

  caf::expected<storage> check_size(tensor_dtype dtype, std::optional<uint64_t> count) {
    uint64_t count_again = 0;
    if (input_.size() - position_ < sizeof(count_again))
      return malformed("the storage has no elements");
    std::memcpy(&count_again, input_.data() + position_, sizeof(count_again));
    position_ += sizeof(count_again);
    uint64_t size_bytes = 0;
    if (!count || *count != count_again
        || __builtin_mul_overflow(*count, uint64_t{item_size_bytes(dtype)}, &size_bytes)
        || size_bytes != input_.size() - position_)
      return malformed("the storage has another size than it says");
    return storage{dtype, position_, static_cast<size_t>(size_bytes)};
  }

  std::span<const std::byte> input_;
  size_t position_;
};

/// `_load_from_bytes(bytes)`
caf::expected<storage> read_storage(const pickle_document& document,
                                    std::span<const std::byte> input,
                                    const pickle_value& value) {
  if (!is_call(value, pickle_global::load_from_bytes, 1))
    return malformed("a tensor without a storage");
  const auto& bytes = document.items(value)[0];
  if (bytes.kind != pickle_kind::bytes)
    return malformed("a storage that is not bytes");
  // The input is cut at its end, so that positions in it remain those of the whole.
  const auto first = static_cast<size_t>(bytes.first);
  storage_reader reader{input.first(first + static_cast<size_t>(bytes.size)), first};
  return reader.read();
}

caf::expected<tensor_shape> read_shape(std::span<const pickle_value> items) {
  std::array<uint64_t, tensor_shape::max_rank> dims{};
  if (items.size() > dims.size())
    return refuse(errc::layout_mismatch, "a tensor of too many dimensions");
  for (size_t i = 0; i < items.size(); ++i) {
    const auto dim = as_size(items[i]);
    if (!dim)
      return malformed("a dimension that is no size");
    dims[i] = *dim;
  }
  return tensor_shape{std::span{dims}.first(items.size())};
}

/// Do the strides say that elements lie row-major without gaps? As in torch, the stride of a
/// dimension of 1 says nothing, nor do those of a tensor without elements.
/// @pre the product of `shape` is representable
bool is_contiguous(const tensor_shape& shape, const tensor_shape& strides) {
  if (shape.dims().size() != strides.dims().size())
    return false;
  if (shape.element_count() == 0u)
    return true;
  uint64_t expected = 1;
  for (size_t i = shape.dims().size(); i > 0; --i) {
    const auto dim = shape.dims()[i - 1];
    if (dim != 1 && strides.dims()[i - 1] != expected)
      return false;
    expected *= dim;
  }
  return true;
}

/// Where the elements of `shape` from element `first` on lie in `from`.
caf::expected<tensor_view> place(tensor_dtype dtype, const tensor_shape& shape, uint64_t first,
                                 const storage& from) {
  const uint64_t item_size = item_size_bytes(dtype);
  const auto count = shape.element_count();
  uint64_t size_bytes = 0;
  uint64_t offset_bytes = 0;
  uint64_t end = 0;
  if (!count || __builtin_mul_overflow(*count, item_size, &size_bytes)
      || __builtin_mul_overflow(first, item_size, &offset_bytes)
      || __builtin_add_overflow(offset_bytes, size_bytes, &end) || end > from.size_bytes)
    return malformed("a tensor beyond its storage");
  return tensor_view{dtype, shape, from.offset_bytes + static_cast<size_t>(offset_bytes),
                     static_cast<size_t>(size_bytes)};
}

/// `_rebuild_tensor_v2(storage, first element, shape, strides, False, OrderedDict())`, or
/// `_rebuild_tensor_v3` of the same and a dtype.
caf::expected<tensor_view> read_tensor(const pickle_document& document,
                                       std::span<const std::byte> input,
                                       const pickle_value& value) {
  const bool with_dtype = is_call(value, pickle_global::rebuild_tensor_v3, 7);
  if (!with_dtype && !is_call(value, pickle_global::rebuild_tensor_v2, 6))
    return malformed("an item that is no tensor");
  const auto arguments = document.items(value);
  const auto first = as_size(arguments[1]);
  if (!first || arguments[2].kind != pickle_kind::tuple
      || arguments[3].kind != pickle_kind::tuple)
    return malformed("a tensor without offset, shape or strides");
  if (!is_boolean(arguments[4], false))
    return malformed("a tensor that requires a gradient");
  if (!is_call(arguments[5], pickle_global::ordered_dict, 0))
    return malformed("a tensor with hooks");
  auto from = read_storage(document, input, arguments[0]);
  if (!from)
    return std::move(from.error());
  auto dtype = from->dtype;
  if (with_dtype) {
    if (arguments[6].kind != pickle_kind::global || arguments[6].global != pickle_global::dtype
        || from->dtype != tensor_dtype::uint8)
      return malformed("a dtype over a storage of another one");
    dtype = arguments[6].dtype;
  }
  auto shape = read_shape(document.items(arguments[2]));
  if (!shape)
    return std::move(shape.error());
  auto strides = read_shape(document.items(arguments[3]));
  if (!strides)
    return std::move(strides.error());
  auto view = place(dtype, *shape, *first, *from);
  if (view && !is_contiguous(*shape, *strides))
    return refuse(errc::layout_mismatch, "a tensor that is not contiguous");
  return view;
}

} // namespace

caf::expected<std::vector<tensor_view>> read_tensor_list(std::span<const std::byte> pickle) {
  const auto document = pickle_document::parse(pickle, 0, outer_limits);
  if (!document)
    return document.error();
  if (document->root().kind != pickle_kind::list)
    return malformed("no list");
  if (document->end() != pickle.size())
    return malformed("bytes behind the list");
  const auto items = document->items(document->root());
  if (items.size() > max_tensor_count)
    return refuse(errc::too_large, "too many tensors");
  std::vector<tensor_view> result;
  result.reserve(items.size());
  for (const auto& item : items) {
    auto view = read_tensor(*document, pickle, item);
    if (!view)
      return std::move(view.error());
    result.push_back(*view);
  }
  return result;
}

} // namespace kvasir::mp
