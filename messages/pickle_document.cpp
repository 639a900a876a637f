#include "messages/pickle_document.hpp"

#include "messages/pickle_parser.hpp"

#include <algorithm>

namespace kvasir::mp {

caf::expected<pickle_document> pickle_document::parse(std::span<const std::byte> input,
                                                      size_t position,
                                                      const pickle_limits& limits) {
  pickle_parser parser{input, position, limits};
  return parser.run();
}

std::span<const pickle_value> pickle_document::items(const pickle_value& value) const {
  const auto first = static_cast<size_t>(value.first);
  switch (value.kind) {
    case pickle_kind::tuple:
    case pickle_kind::call:
    case pickle_kind::persistent_id:
      return std::span{items_}.subspan(first, value.size);
    case pickle_kind::list:
    case pickle_kind::dict:
      return containers_[first];
    case pickle_kind::none:
    case pickle_kind::boolean:
    case pickle_kind::integer:
    case pickle_kind::long_integer:
    case pickle_kind::text:
    case pickle_kind::bytes:
    case pickle_kind::global:
      break;
  }
  return {};
}

std::span<const std::byte> pickle_document::bytes(const pickle_value& value) const {
  if (value.kind != pickle_kind::text && value.kind != pickle_kind::bytes
      && value.kind != pickle_kind::long_integer)
    return {};
  return input_.subspan(static_cast<size_t>(value.first), value.size);
}

bool pickle_document::is_text(const pickle_value& value, std::string_view text) const {
  return value.kind == pickle_kind::text
         && std::ranges::equal(bytes(value), std::as_bytes(std::span{text}));
}

} // namespace kvasir::mp
