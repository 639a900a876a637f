#include "messages/lm_tables.hpp"

#include <algorithm>

namespace kvasir::lm {

namespace {

constexpr std::array<std::string_view, 9> format_names{"UNDEFINED",  "KV_2LTD", "KV_T2D",
                                                       "KV_2TD",     "BINARY",  "BINARY_BUFFER",
                                                       "KV_MLA_FMT", "EC_TD",   "HS_TD"};
constexpr std::array<size_t, 9> format_token_dims{0, 2, 1, 0, 0, 0, 2, 0, 0};

constexpr std::array<std::string_view, 9> dtype_names{
  "none",    "float16", "float16",       "bfloat16",   "float32",
  "float64", "uint8",   "float8_e4m3fn", "float8_e5m2"};
constexpr std::array<size_t, 9> dtype_sizes{0, 2, 2, 2, 4, 8, 1, 1, 1};

constexpr std::array<std::string_view, 3> location_names{"None", "LocalCPUBackend",
                                                         "LocalDiskBackend"};

template <class Array>
bool has_index(const Array& table, int32_t value) {
  return value >= 0 && static_cast<size_t>(value) < table.size();
}

template <size_t Count>
std::string_view name_at(const std::array<std::string_view, Count>& names, int32_t value) {
  return has_index(names, value) ? names[static_cast<size_t>(value)] : std::string_view{};
}

template <size_t Count>
std::optional<int32_t> index_of(const std::array<std::string_view, Count>& names,
                                std::string_view name) {
  auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    return std::nullopt;
  return static_cast<int32_t>(found - names.begin());
}

} // namespace

std::optional<command> to_command(int32_t value) {
  if (value < static_cast<int32_t>(command::put)
      || value > static_cast<int32_t>(command::health))
    return std::nullopt;
  return static_cast<command>(value);
}

std::optional<return_code> to_return_code(int32_t value) {
  if (value != static_cast<int32_t>(return_code::success)
      && value != static_cast<int32_t>(return_code::fail))
    return std::nullopt;
  return static_cast<return_code>(value);
}

std::string_view to_string(command value) {
  switch (value) {
    case command::put:
      return "PUT";
    case command::get:
      return "GET";
    case command::exist:
      return "EXIST";
    case command::list:
      return "LIST";
    case command::health:
      return "HEALTH";
  }
  return "unknown";
}

bool is_memory_format(int32_t value) {
  return has_index(format_names, value);
}

bool is_location(int32_t value) {
  return has_index(location_names, value);
}

std::optional<int32_t> normalise_dtype(int32_t value) {
  if (!has_index(dtype_names, value))
    return std::nullopt;
  if (value == static_cast<int32_t>(dtype_code::half_alias))
    return static_cast<int32_t>(dtype_code::float16);
  return value;
}

size_t item_size(int32_t dtype) {
  return has_index(dtype_sizes, dtype) ? dtype_sizes[static_cast<size_t>(dtype)] : 0;
}

std::string_view format_name(int32_t value) {
  return name_at(format_names, value);
}

std::string_view dtype_name(int32_t value) {
  return name_at(dtype_names, value);
}

std::string_view location_name(int32_t value) {
  return name_at(location_names, value);
}

std::optional<int32_t> format_from_name(std::string_view name) {
  return index_of(format_names, name);
}

std::optional<int32_t> dtype_from_name(std::string_view name) {
  if (name == "half")
    name = "float16";
  else if (name == "float")
    name = "float32";
  else if (name == "double")
    name = "float64";
  auto code = index_of(dtype_names, name);
  return code ? normalise_dtype(*code) : std::nullopt;
}

std::optional<int32_t> location_from_name(std::string_view name) {
  return index_of(location_names, name);
}

size_t token_dim(int32_t format) {
  return has_index(format_token_dims, format) ? format_token_dims[static_cast<size_t>(format)]
                                              : 0;
}

bool is_key_dtype(std::string_view name) {
  for (const auto& x : key_dtypes)
    if (x.name == name)
      return true;
  return false;
}

} // namespace kvasir::lm
