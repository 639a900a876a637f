#include "examples/engine/gguf_file.hpp"

#include "examples/engine/byte_cursor.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

namespace kvasir::example {

namespace {

constexpr uint32_t magic = 0x46554747; // "GGUF"
constexpr uint32_t version = 3;
constexpr uint64_t max_dimensions = 4;
constexpr uint64_t default_alignment = 32;
constexpr uint64_t max_alignment = 1 << 16;

/// Bytes of a value; 0 if its type has no fixed size or does not exist.
uint64_t size_of(uint32_t type) {
  constexpr uint64_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(sizes) ? sizes[type] : 0;
}

caf::error malformed(std::string what) {
  return caf::make_error(errc::malformed_frame, "no usable GGUF file: " + std::move(what));
}

std::string quoted(std::string_view name) {
  return "'" + std::string{name.substr(0, 80)} + "'";
}

/// Finds where a value ends, and nothing more: it is read when somebody asks for it.
std::optional<gguf_value> skip_value(byte_cursor& from) {
  gguf_value result;
  result.type = from.number<uint32_t>();
  if (result.type == gguf_value::array_of) {
    result.array = true;
    result.type = from.number<uint32_t>();
    result.count = from.number<uint64_t>();
  }
  auto begin = from.rest();
  if (result.type == gguf_value::text) {
    for (uint64_t i = 0; i < result.count && from.ok(); ++i)
      from.text();
  } else if (auto size = size_of(result.type); size != 0) {
    from.take_array(result.count, size);
  } else {
    return std::nullopt; // An unknown type, or an array of arrays, which no model has.
  }
  if (!from.ok())
    return std::nullopt;
  result.bytes = begin.first(begin.size() - from.rest().size());
  return result;
}

/// Numbers and bytes of the smallest unit of a type.
struct block_size {
  uint64_t numbers = 0;
  uint64_t bytes = 0;
};

std::optional<block_size> block_of(uint32_t type) {
  switch (gguf_type{type}) {
    case gguf_type::f32:
      return block_size{1, 4};
    case gguf_type::q4_1:
      return block_size{32, 2 + 2 + 16};
    case gguf_type::q8_0:
      return block_size{32, 2 + 32};
  }
  return std::nullopt;
}

/// What the header says of a tensor.
struct tensor_entry {
  std::string_view name;
  gguf_tensor tensor;
  uint64_t offset = 0; ///< From the end of the header.
  uint64_t size_bytes = 0;
};

/// The numbers in a tensor, none if they are more than `limit`.
std::optional<uint64_t> read_shape(byte_cursor& from, uint64_t limit, gguf_tensor& into) {
  auto dimensions = from.number<uint32_t>();
  if (dimensions == 0 || dimensions > max_dimensions)
    return std::nullopt;
  uint64_t numbers = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    auto size = from.number<uint64_t>();
    if (size == 0 || size > limit / numbers)
      return std::nullopt;
    numbers *= size;
    // The file names the contiguous dimension first.
    into.shape.insert(into.shape.begin(), static_cast<int64_t>(size));
  }
  return numbers;
}

caf::expected<tensor_entry> read_tensor_entry(byte_cursor& from, uint64_t file_size) {
  tensor_entry result;
  result.name = from.text();
  auto wrong = [&](const std::string& what) {
    return malformed("tensor " + quoted(result.name) + " " + what);
  };
  // The densest type has two numbers a byte.
  auto numbers = read_shape(from, 2 * file_size, result.tensor);
  auto type = from.number<uint32_t>();
  result.offset = from.number<uint64_t>();
  if (!from.ok() || !numbers)
    return wrong("is cut off, empty, or larger than any this file can hold");
  auto block = block_of(type);
  if (!block)
    return wrong("has type " + std::to_string(type) + ", only F32, Q4_1 and Q8_0 are read");
  if (static_cast<uint64_t>(result.tensor.shape.back()) % block->numbers != 0)
    return wrong("has rows that end within a block");
  result.tensor.type = gguf_type{type};
  result.size_bytes = *numbers / block->numbers * block->bytes;
  return result;
}

std::error_code last_error() {
  return {errno, std::generic_category()};
}

} // namespace

caf::expected<gguf_file> gguf_file::open(const std::filesystem::path& path) {
  auto failed = [&] {
    return caf::make_error(errc::io_error, path.string() + ": " + last_error().message());
  };
  auto descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return failed();
  struct stat about {};
  void* address = MAP_FAILED;
  size_t size = 0;
  if (::fstat(descriptor, &about) == 0) {
    size = static_cast<size_t>(about.st_size);
    address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  auto why = failed();
  ::close(descriptor);
  if (address == MAP_FAILED)
    return why;
  std::shared_ptr<const void> mapping{address, [size](void* what) {
                                        ::munmap(what, size);
                                      }};
  auto result = parse({static_cast<const std::byte*>(address), size});
  if (result)
    result->mapping_ = std::move(mapping);
  return result;
}

caf::expected<gguf_file> gguf_file::parse(std::span<const std::byte> bytes) {
  gguf_file result;
  result.bytes_ = bytes;
  byte_cursor from{bytes};
  if (from.number<uint32_t>() != magic)
    return malformed("it does not begin with 'GGUF'");
  if (auto found = from.number<uint32_t>(); found != version)
    return malformed("version " + std::to_string(found) + ", not 3");
  auto tensor_count = from.number<uint64_t>();
  auto value_count = from.number<uint64_t>();
  if (!from.ok())
    return malformed("it ends within its header");
  if (auto why = result.parse_metadata(from, value_count))
    return why;
  if (auto why = result.parse_tensors(from, tensor_count))
    return why;
  return result;
}

caf::error gguf_file::parse_metadata(byte_cursor& from, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    auto key = from.text();
    auto value = skip_value(from);
    if (!value)
      return malformed("metadata " + quoted(key) + " is of an unknown type or cut off");
    if (!metadata_.emplace(key, *value).second)
      return malformed("metadata " + quoted(key) + " twice");
  }
  return caf::none;
}

caf::error gguf_file::parse_tensors(byte_cursor& from, uint64_t count) {
  std::vector<tensor_entry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    auto entry = read_tensor_entry(from, bytes_.size());
    if (!entry)
      return std::move(entry.error());
    entries.push_back(std::move(*entry));
  }
  auto alignment = integer("general.alignment");
  auto step = alignment ? *alignment : default_alignment;
  if (!std::has_single_bit(step) || step > max_alignment)
    return malformed("alignment " + std::to_string(step));
  auto header_size = bytes_.size() - from.rest().size();
  from.take((step - header_size % step) % step);
  auto data = from.rest();
  for (auto& [name, tensor, offset, size] : entries) {
    if (offset > data.size() || size > data.size() - offset)
      return malformed("tensor " + quoted(name) + " goes beyond the end of the file");
    tensor.data = data.subspan(offset, size);
    if (!tensors_.emplace(name, std::move(tensor)).second)
      return malformed("tensor " + quoted(name) + " twice");
  }
  return caf::none;
}

} // namespace kvasir::example
