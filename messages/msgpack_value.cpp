#include "messages/msgpack_value.hpp"

#include <msgpack.hpp>

#include <limits>

namespace kvasir::mp {

namespace {

/// Deeper than anything the protocol has.
constexpr uint32_t max_depth = 32;

/// Builds the value from the parser's events. Depth 0 is the value itself, depth 1 the elements
/// of an array or map, depth 2 the elements of a field that is an array of numbers.
class value_builder : public msgpack::null_visitor {
public:
  explicit value_builder(std::span<const std::byte> frame) : frame_(frame) {}

  msgpack_value root;

  bool visit_nil() {
    return scalar([](msgpack_value& v) { v.what = msgpack_value::kind::nil; });
  }

  bool visit_boolean(bool value) {
    return scalar([&](msgpack_value& v) {
      v.what = msgpack_value::kind::boolean;
      v.boolean = value;
    });
  }

  bool visit_positive_integer(uint64_t value) {
    if (array_ != nullptr && depth_ == array_depth_) {
      if (value > std::numeric_limits<uint32_t>::max())
        array_->what = msgpack_value::kind::other;
      else
        array_->integers.push_back(static_cast<uint32_t>(value));
      return true;
    }
    return scalar([&](msgpack_value& v) {
      v.what = msgpack_value::kind::integer;
      v.integer = value;
    });
  }

  bool visit_negative_integer(int64_t value) {
    // msgpack-cxx says so of every signed form, also of positive numbers.
    if (value >= 0)
      return visit_positive_integer(static_cast<uint64_t>(value));
    return scalar([&](msgpack_value& v) {
      v.what = msgpack_value::kind::integer;
      v.integer = static_cast<uint64_t>(value);
      v.negative = true;
    });
  }

  bool visit_float32(float value) { return visit_float64(static_cast<double>(value)); }

  bool visit_float64(double value) {
    return scalar([&](msgpack_value& v) {
      v.what = msgpack_value::kind::real;
      v.real = value;
    });
  }

  bool visit_str(const char* data, uint32_t size) {
    if (in_key_ && depth_ == 1) {
      root.fields.push_back({std::string_view{data, size}, msgpack_value{}});
      return true;
    }
    return scalar([&](msgpack_value& v) {
      v.what = msgpack_value::kind::text;
      v.text = {data, size};
    });
  }

  bool visit_bin(const char* data, uint32_t size) {
    return scalar([&](msgpack_value& v) {
      v.what = msgpack_value::kind::binary;
      v.binary = std::as_bytes(std::span{data, size});
    });
  }

  bool visit_ext(const char*, uint32_t) {
    return scalar([](msgpack_value& v) { v.what = msgpack_value::kind::other; });
  }

  bool start_array(uint32_t size) {
    // Each element takes a byte: what is longer than the frame is no array.
    if (size > frame_.size() || ++depth_ > max_depth)
      return false;
    auto target = depth_ <= 2 && !in_key_ ? current(depth_ - 1) : nullptr;
    if (target == nullptr)
      return mark_other() && refuse_key(depth_ - 1);
    target->what = msgpack_value::kind::integers;
    target->integers.reserve(size);
    array_ = target;
    array_depth_ = depth_;
    return true;
  }

  bool end_array() {
    if (depth_-- == array_depth_)
      array_ = nullptr;
    return true;
  }

  bool start_map(uint32_t size) {
    if (size > frame_.size() / 2 || ++depth_ > max_depth)
      return false;
    if (depth_ == 1 && size > msgpack_value::max_fields)
      return false;
    if (depth_ == 1)
      root.what = msgpack_value::kind::map;
    else if (!mark_other())
      return false;
    return refuse_key(depth_ - 1);
  }

  bool start_map_key() {
    if (depth_ == 1)
      in_key_ = true;
    return true;
  }

  bool end_map_key() {
    if (depth_ == 1)
      in_key_ = false;
    return true;
  }

  bool end_map() {
    --depth_;
    return true;
  }

private:
  /// Where a value at this depth belongs; null if its content is left out.
  msgpack_value* current(uint32_t depth) {
    if (depth == 0)
      return &root;
    if (depth == 1 && root.what == msgpack_value::kind::map && !root.fields.empty())
      return &root.fields.back().value;
    return nullptr;
  }

  /// Something else than a number in an array, or a map in a field: no content.
  bool mark_other() {
    if (array_ != nullptr) {
      array_->what = msgpack_value::kind::other;
      array_->integers.clear();
    } else if (auto target = current(1)) {
      target->what = msgpack_value::kind::other;
    }
    return true;
  }

  /// The names of a map at depth 1 are texts.
  bool refuse_key(uint32_t depth) const { return !(in_key_ && depth == 1); }

  template <class Set>
  bool scalar(Set set) {
    if (in_key_ && depth_ == 1)
      return false;
    if (array_ != nullptr)
      return mark_other();
    if (auto target = current(depth_))
      set(*target);
    return true;
  }

  std::span<const std::byte> frame_;
  uint32_t depth_ = 0;
  bool in_key_ = false;
  msgpack_value* array_ = nullptr; ///< The array of numbers that is being read,
  uint32_t array_depth_ = 0;       ///< and the depth of its elements.
};

} // namespace

msgpack_value* msgpack_value::find(std::string_view name) {
  for (auto i = fields.rbegin(); i != fields.rend(); ++i)
    if (i->name == name)
      return &i->value;
  return nullptr;
}

std::optional<uint64_t> msgpack_value::as_unsigned(uint64_t lowest, uint64_t highest) const {
  if (what != kind::integer || negative || integer < lowest || integer > highest)
    return std::nullopt;
  return integer;
}

caf::expected<msgpack_value> parse_msgpack(std::span<const std::byte> frame) {
  value_builder builder{frame};
  size_t end = 0;
  auto data = reinterpret_cast<const char*>(frame.data());
  if (frame.empty() || !msgpack::parse(data, frame.size(), end, builder) || end != frame.size())
    return caf::make_error(errc::malformed_frame);
  return std::move(builder.root);
}

} // namespace kvasir::mp
