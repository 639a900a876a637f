#include "messages/pickle_parser.hpp"

#include <algorithm>
#include <utility>

namespace kvasir::mp {

namespace {

/// A line of GLOBAL. The longest name that we know is shorter.
constexpr size_t max_line_size = 64;

/// The opcodes of CPython's pickletools, protocols 2 to 4; one that is missing is refused.
enum opcode : uint8_t {
  op_mark = '(',
  op_stop = '.',
  op_none = 'N',
  op_newtrue = 0x88,
  op_newfalse = 0x89,
  op_binint = 'J',
  op_binint1 = 'K',
  op_binint2 = 'M',
  op_long1 = 0x8a,
  op_binunicode = 'X',
  op_short_binunicode = 0x8c,
  op_binunicode8 = 0x8d,
  op_binbytes = 'B',
  op_short_binbytes = 'C',
  op_binbytes8 = 0x8e,
  op_empty_list = ']',
  op_empty_dict = '}',
  op_empty_tuple = ')',
  op_tuple = 't',
  op_tuple1 = 0x85,
  op_tuple2 = 0x86,
  op_tuple3 = 0x87,
  op_append = 'a',
  op_appends = 'e',
  op_setitem = 's',
  op_setitems = 'u',
  op_global = 'c',
  op_stack_global = 0x93,
  op_reduce = 'R',
  op_binpersid = 'Q',
  op_memoize = 0x94,
  op_binput = 'q',
  op_long_binput = 'r',
  op_binget = 'h',
  op_long_binget = 'j',
  op_proto = 0x80,
  op_frame = 0x95,
};

} // namespace

pickle_parser::pickle_parser(std::span<const std::byte> input, size_t position,
                             const pickle_limits& limits)
  : start_(position),
    limits_(limits),
    position_(position) {
  document_.input_ = input;
}

caf::expected<pickle_document> pickle_parser::run() {
  for (size_t count = 0;; ++count) {
    opcode_at_ = position_;
    uint64_t opcode = 0;
    if (!take_number(1, opcode))
      return std::move(error_);
    if (opcode == op_stop)
      break;
    if (count >= limits_.operations) {
      refuse("too many opcodes");
      return std::move(error_);
    }
    if (!step(static_cast<uint8_t>(opcode)))
      return std::move(error_);
  }
  if (!finish())
    return std::move(error_);
  return std::move(document_);
}

bool pickle_parser::refuse(const std::string& what) {
  error_ = caf::make_error(errc::malformed_frame,
                           "pickle: " + what + " at byte " + std::to_string(opcode_at_));
  return false;
}

bool pickle_parser::step(uint8_t opcode) {
  switch (opcode) {
    case op_proto:
      return check_protocol();
    case op_frame:
      return skip_frame_head();
    case op_mark:
      if (marks_.size() >= limits_.stack)
        return refuse("too many marks");
      marks_.push_back(stack_.size());
      return true;
    case op_none:
      return push({});
    case op_newtrue:
      return push({.kind = pickle_kind::boolean, .first = 1});
    case op_newfalse:
      return push({.kind = pickle_kind::boolean});
    case op_binint1:
      return push_integer(1);
    case op_binint2:
      return push_integer(2);
    case op_binint:
      return push_integer(4);
    case op_long1:
      return push_long();
    case op_short_binunicode:
      return push_bytes(pickle_kind::text, 1);
    case op_binunicode:
      return push_bytes(pickle_kind::text, 4);
    case op_binunicode8:
      return push_bytes(pickle_kind::text, 8);
    case op_short_binbytes:
      return push_bytes(pickle_kind::bytes, 1);
    case op_binbytes:
      return push_bytes(pickle_kind::bytes, 4);
    case op_binbytes8:
      return push_bytes(pickle_kind::bytes, 8);
    case op_empty_list:
      return push_container(pickle_kind::list);
    case op_empty_dict:
      return push_container(pickle_kind::dict);
    case op_empty_tuple:
      return push_tuple(0);
    case op_tuple1:
      return push_tuple(1);
    case op_tuple2:
      return push_tuple(2);
    case op_tuple3:
      return push_tuple(3);
    case op_tuple: {
      size_t count = 0;
      return pop_mark(count) && push_tuple(count);
    }
    case op_append:
      return append(pickle_kind::list, 1);
    case op_appends:
      return append_to_mark(pickle_kind::list);
    case op_setitem:
      return append(pickle_kind::dict, 2);
    case op_setitems:
      return append_to_mark(pickle_kind::dict);
    case op_global: {
      std::string_view module;
      std::string_view name;
      return take_line(module) && take_line(name) && push_global(module, name);
    }
    case op_stack_global:
      return push_named_global();
    case op_reduce:
      return reduce();
    case op_binpersid:
      return persistent_id();
    case op_memoize:
      return memoize();
    case op_binput:
      return memoize_at(1);
    case op_long_binput:
      return memoize_at(4);
    case op_binget:
      return push_memo(1);
    case op_long_binget:
      return push_memo(4);
  }
  return refuse("opcode " + std::to_string(opcode) + " is not one of a tensor list's");
}

bool pickle_parser::take(uint64_t size, std::span<const std::byte>& result) {
  if (size > document_.input_.size() - position_)
    return refuse("cut off");
  result = document_.input_.subspan(position_, static_cast<size_t>(size));
  position_ += result.size();
  return true;
}

/// Unsigned, little-endian.
bool pickle_parser::take_number(size_t size, uint64_t& result) {
  std::span<const std::byte> bytes;
  if (!take(size, bytes))
    return false;
  result = 0;
  for (size_t i = size; i > 0; --i)
    result = result << 8 | std::to_integer<uint64_t>(bytes[i - 1]);
  return true;
}

bool pickle_parser::take_line(std::string_view& result) {
  const auto rest = document_.input_.subspan(position_);
  const auto line = rest.first(std::min(rest.size(), max_line_size));
  const std::string_view text{reinterpret_cast<const char*>(line.data()), line.size()};
  const auto end = text.find('\n');
  if (end == std::string_view::npos)
    return refuse("a global without an end or with a long name");
  result = text.substr(0, end);
  position_ += end + 1;
  return true;
}

bool pickle_parser::check_protocol() {
  uint64_t version = 0;
  if (opcode_at_ != start_)
    return refuse("a protocol version within a stream");
  if (!take_number(1, version))
    return false;
  return version <= 5 || refuse("protocol " + std::to_string(version));
}

/// A frame says what may be read at once; there is nothing else to it.
bool pickle_parser::skip_frame_head() {
  uint64_t size = 0;
  if (!take_number(8, size))
    return false;
  return size <= document_.input_.size() - position_ || refuse("a frame longer than the input");
}

} // namespace kvasir::mp
