// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/pickle_document.hpp"

#include <string>

namespace kvasir::mp {

/// The stack machine behind `pickle_document::parse`; used for one stream. `pickle_parser.cpp`
/// reads the stream, `pickle_parser_values.cpp` has what its opcodes do.
class pickle_parser {
public:
  pickle_parser(std::span<const std::byte> input, size_t position, const pickle_limits& limits);

  caf::expected<pickle_document> run();

private:
  /// Each of these returns false after `refuse`, which is false itself.
  bool refuse(const std::string& what);
  bool step(uint8_t opcode);
  bool take(uint64_t size, std::span<const std::byte>& result);
  bool take_number(size_t size, uint64_t& result);
  bool take_line(std::string_view& result);
  bool push(pickle_value value);
  bool push_integer(size_t size);
  bool push_long();
  bool push_bytes(pickle_kind kind, size_t length_size);
  bool push_container(pickle_kind kind);
  bool push_tuple(size_t count);
  bool push_global(std::string_view module, std::string_view name);
  bool push_named_global();
  bool push_memo(size_t index_size);
  bool memoize();
  bool memoize_at(size_t index_size);
  bool check_protocol();
  bool skip_frame_head();
  bool pop_mark(size_t& count);
  bool append(pickle_kind kind, size_t count);
  bool append_to_mark(pickle_kind kind);
  bool reduce();
  bool persistent_id();
  bool finish();
  bool need(size_t count);

  /// Values that an opcode may use: those above the last mark.
  size_t usable() const;

  const size_t start_;
  const pickle_limits limits_;
  size_t position_; ///< Of the next byte.
  size_t opcode_at_ = 0;
  pickle_document document_;
  std::vector<pickle_value> stack_;
  std::vector<size_t> marks_; ///< Heights of the stack.
  std::vector<pickle_value> memo_;
  caf::error error_;
};

} // namespace kvasir::mp
