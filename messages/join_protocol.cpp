#include "messages/join_protocol.hpp"

#include <string_view>

namespace kvasir::join {

namespace {

void append(std::vector<char>& out, const frame_header& header, std::string_view payload) {
  auto raw = reinterpret_cast<const char*>(&header);
  out.insert(out.end(), raw, raw + sizeof(header));
  out.insert(out.end(), payload.begin(), payload.end());
}

/// An error of another category than ours says that the manager did not answer.
errc code_of(const caf::error& why) {
  return why.category() == caf::atom("kvasir") ? static_cast<errc>(why.code())
                                               : errc::peer_unreachable;
}

} // namespace

void append_done(std::vector<char>& out, op what, uint64_t id) {
  append(out, {0, what, 0, id}, {});
}

void append_error(std::vector<char>& out, op what, uint64_t id, const caf::error& why) {
  std::string text;
  if (why.context().match_elements<std::string>())
    text = why.context().get_as<std::string>(0);
  append(out,
         {static_cast<uint32_t>(text.size()), what, static_cast<uint16_t>(code_of(why)), id},
         text);
}

caf::error error_of(const frame_header& header, const char* payload) {
  auto code = static_cast<errc>(header.status);
  if (header.payload_bytes == 0)
    return caf::make_error(code);
  return caf::make_error(code, std::string{payload, header.payload_bytes});
}

} // namespace kvasir::join
