#include "actors/lm_connection.hpp"
#include "actors/log.hpp"
#include "messages/lm_shape.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

// What lm_connection does for each kind of request; how it lives is in lm_connection.cpp.
namespace kvasir {

namespace {

/// Read in pieces that are still in the core's cache when they are hashed: 64 KiB cost half as
/// much as 256 KiB.
constexpr size_t hashed_piece_bytes = 64 * 1024;
constexpr size_t piece_bytes = 1 << 20;

} // namespace

// -- PUT --------------------------------------------------------------------------------

lm_connection::progress lm_connection::begin_put(const lm::client_header_result& request) {
  begin_ += lm::client_header_size;
  shard_.counters.add(lm_count::puts);
  size_bytes_ = request.body_size();
  done_bytes_ = 0;
  if (!request.good()) {
    drop_value(lm_count::protocol_errors);
    return progress::more;
  }
  if (size_bytes_ > shard_.options.max_object_bytes) {
    drop_value(lm_count::dropped_too_large);
    return progress::more;
  }
  if (lm::contradicts(request.header.layout, size_bytes_)) {
    drop_value(lm_count::dropped_layout_mismatch);
    log::write_limited(log::level::warn, "a PUT is longer than its shape and dtype: not stored",
                       {{"key", request.header.key}, {"bytes", std::to_string(size_bytes_)}});
    return progress::more;
  }
  if (request.kind == lm::key_kind::raw)
    shard_.counters.add(lm_count::raw_keys);
  key_.bytes = request.header.key;
  layout_ = request.header.layout;
  state_ = state::first_byte;
  return progress::more;
}

void lm_connection::drop_value(lm_count why) {
  shard_.counters.add(why);
  state_ = state::draining;
}

lm_connection::progress lm_connection::on_first_byte() {
  if (buffered() == 0 && size_bytes_ > 0) {
    if (auto flushed = flush(); flushed != progress::more)
      return flushed;
    return fill();
  }
  hash_.reset();
  wrote_ = true;
  shard_.unit.request(shard_.manager,
                      reserve_write{writer_, std::move(key_), layout_, size_bytes_}, reserved_,
                      shard_.options.room_deadline);
  state_ = state::reserving;
  return progress::more;
}

/// The manager may still grant what this connection no longer waits for: end the owner, so
/// that such a grant is void, and go on under a new name.
void lm_connection::give_up_waiting(owner_id& owner) {
  shard_.unit.send(shard_.manager, end_owner{std::exchange(owner, next_owner_id())});
}

lm_connection::progress lm_connection::on_reserved() {
  if (reserved_.pending())
    return wait();
  if (!reserved_) {
    if (reserved_.error() == errc::peer_unreachable)
      return progress::ended;
    if (reserved_.error() == errc::timed_out)
      give_up_waiting(writer_);
    drop_value(reserved_.error() == errc::too_large ? lm_count::dropped_too_large
                                                    : lm_count::dropped_no_room);
    return progress::more;
  }
  state_ = state::receiving;
  return progress::more;
}

lm_connection::progress lm_connection::receive_body() {
  auto target = shard_.pool + reserved_.value.where.offset_bytes;
  auto verify = shard_.options.verify_checksums;
  if (buffered() > 0 && done_bytes_ < size_bytes_) {
    auto count = std::min<uint64_t>(buffered(), size_bytes_ - done_bytes_);
    std::memcpy(target + done_bytes_, buffer_.get() + begin_, count);
    if (verify)
      hash_.update({target + done_bytes_, count});
    begin_ += count;
    done_bytes_ += count;
  }
  while (done_bytes_ < size_bytes_) {
    if (moved_bytes_ >= turn_end_)
      return progress::yield;
    auto want = std::min<uint64_t>(verify ? hashed_piece_bytes : piece_bytes,
                                   size_bytes_ - done_bytes_);
    size_t got = 0;
    if (auto outcome = read_some(target + done_bytes_, want, got); outcome != progress::more)
      return wait(outcome);
    if (verify)
      hash_.update({target + done_bytes_, got});
    done_bytes_ += got;
  }
  return finish_put();
}

lm_connection::progress lm_connection::finish_put() {
  // Not awaited: whatever this client asks next comes after it in the manager's mailbox.
  auto checksum = shard_.options.verify_checksums ? hash_.digest() : 0;
  shard_.unit.send(shard_.manager, finish_write{reserved_.value.id, checksum});
  shard_.counters.add(lm_count::put_bytes, size_bytes_);
  state_ = state::header;
  return progress::more;
}

lm_connection::progress lm_connection::drain_body() {
  for (;;) {
    auto count = std::min<uint64_t>(buffered(), size_bytes_ - done_bytes_);
    begin_ += count;
    done_bytes_ += count;
    if (done_bytes_ == size_bytes_) {
      state_ = state::header;
      return progress::more;
    }
    if (moved_bytes_ >= turn_end_)
      return progress::yield;
    if (auto filled = fill(); filled != progress::more)
      return wait(filled);
  }
}

// -- GET --------------------------------------------------------------------------------

lm_connection::progress lm_connection::begin_get(const lm::client_header_result& request) {
  begin_ += lm::client_header_size;
  shard_.counters.add(lm_count::gets);
  if (!request.good()) {
    shard_.counters.add(lm_count::protocol_errors);
    outbox_.add(lm::plain_reply(lm::return_code::fail));
    return progress::more;
  }
  if (request.kind == lm::key_kind::raw)
    shard_.counters.add(lm_count::raw_keys);
  read_ = true;
  shard_.unit.request(shard_.manager, acquire_read{reader_, object_key{request.header.key}},
                      acquired_, shard_.options.room_deadline);
  state_ = state::acquiring;
  return progress::more;
}

lm_connection::progress lm_connection::on_acquired() {
  if (acquired_.pending())
    return wait();
  if (!acquired_) {
    if (acquired_.error() == errc::peer_unreachable)
      return progress::ended;
    if (acquired_.error() == errc::timed_out) {
      // The outbox may hold values under the same owner: they must be out first.
      if (auto flushed = flush(); flushed != progress::more)
        return flushed;
      give_up_waiting(reader_);
    }
    outbox_.add(lm::plain_reply(lm::return_code::fail));
    state_ = state::header;
    return progress::more;
  }
  size_bytes_ = acquired_.value.where.size_bytes;
  done_bytes_ = 0;
  if (!shard_.options.verify_checksums) {
    send_value();
    return progress::more;
  }
  hash_.reset();
  state_ = state::verifying;
  return progress::more;
}

lm_connection::progress lm_connection::verify_value() {
  auto value = shard_.pool + acquired_.value.where.offset_bytes;
  while (done_bytes_ < size_bytes_) {
    if (moved_bytes_ >= turn_end_)
      return progress::yield;
    auto count = std::min<uint64_t>(turn_bytes, size_bytes_ - done_bytes_);
    hash_.update({value + done_bytes_, count});
    done_bytes_ += count;
    moved_bytes_ += count;
  }
  if (hash_.digest() == acquired_.value.checksum) {
    send_value();
    return progress::more;
  }
  shard_.counters.add(lm_count::checksum_mismatches);
  log::write(log::level::error, "a value changed in memory: dropped, answered as a miss",
             {{"bytes", std::to_string(size_bytes_)}});
  shard_.unit.send(shard_.manager, release_read{acquired_.value.id, true});
  outbox_.add(lm::plain_reply(lm::return_code::fail));
  state_ = state::header;
  return progress::more;
}

void lm_connection::send_value() {
  auto& found = acquired_.value;
  lm::server_header reply;
  reply.code = lm::return_code::success;
  reply.length = static_cast<int32_t>(size_bytes_);
  reply.layout = found.layout;
  state_ = state::header;
  auto header = lm::encode_server_header(reply);
  if (!header) { // Cannot be: only what a PUT declared correctly is stored.
    shard_.unit.send(shard_.manager, release_read{found.id, true});
    outbox_.add(lm::plain_reply(lm::return_code::fail));
    return;
  }
  outbox_.add(*header);
  shard_.counters.add(lm_count::get_hits);
  shard_.counters.add(lm_count::get_bytes, size_bytes_);
  if (size_bytes_ == 0)
    shard_.unit.send(shard_.manager, release_read{found.id, false});
  else
    outbox_.add_value({shard_.pool + found.where.offset_bytes, size_bytes_}, found.id);
}

// -- EXIST, HEALTH ----------------------------------------------------------------------

lm_connection::progress lm_connection::begin_check() {
  checks_.clear();
  check_exist question;
  question.keys.reserve(buffered() / lm::client_header_size);
  while (buffered() >= lm::client_header_size) {
    auto request = parse_next();
    if (request.framing_lost()
        || (request.header.op != lm::command::exist
            && request.header.op != lm::command::health))
      break;
    begin_ += lm::client_header_size;
    auto exist = request.header.op == lm::command::exist;
    shard_.counters.add(exist ? lm_count::exists : lm_count::healths);
    if (!request.good()) {
      shard_.counters.add(lm_count::protocol_errors);
      checks_.push_back(check::bad);
    } else if (exist) {
      if (request.kind == lm::key_kind::raw)
        shard_.counters.add(lm_count::raw_keys);
      checks_.push_back(check::exist);
      question.keys.push_back(object_key{std::move(request.header.key)});
    } else {
      checks_.push_back(check::health);
    }
  }
  // Also without any key: that the manager answers is what HEALTH asks.
  shard_.unit.request(shard_.manager, std::move(question), exist_,
                      shard_.options.room_deadline);
  state_ = state::checking;
  return progress::more;
}

lm_connection::progress lm_connection::on_checked() {
  if (exist_.pending())
    return wait();
  if (!exist_)
    return progress::ended; // The manager is gone, or hangs: nothing here can be trusted.
  auto found = exist_.value.found.begin();
  for (auto asked : checks_) {
    auto yes = asked == check::health || (asked == check::exist && *found++ != 0);
    outbox_.add(lm::plain_reply(yes ? lm::return_code::success : lm::return_code::fail));
  }
  state_ = state::header;
  return progress::more;
}

// -- LIST -------------------------------------------------------------------------------

/// Compat: LMCache's server never answers a LIST. This is the form that its own commented-out
/// code had: the number of keys in the shape, the keys separated by newlines as the value.
lm_connection::progress lm_connection::on_listed() {
  if (list_.pending())
    return wait();
  if (!list_)
    return progress::ended;
  auto full = false;
  for (auto& object : list_.value.objects) {
    auto& key = object.key.bytes;
    if (key.starts_with('\0')) // Another protocol's.
      continue;
    full = list_text_.size() + key.size() + 1 > shard_.options.max_list_bytes;
    if (full)
      break;
    if (list_count_++ > 0)
      list_text_ += '\n';
    list_text_ += key;
  }
  if (!full && list_.value.next_cursor != 0) {
    shard_.unit.request(shard_.manager, list_objects{list_.value.next_cursor}, list_,
                        shard_.options.room_deadline);
    return progress::yield; // A long list lets others run between its slices.
  }
  if (full)
    shard_.counters.add(lm_count::lists_truncated);
  lm::server_header reply;
  reply.code = lm::return_code::success;
  reply.length = static_cast<int32_t>(list_text_.size());
  reply.layout
    = {static_cast<int32_t>(lm::memory_format::binary_buffer), 0, {list_count_, 0, 0, 0}};
  if (auto header = lm::encode_server_header(reply)) {
    outbox_.add(*header);
    outbox_.add(std::as_bytes(std::span{list_text_}));
  }
  list_text_ = std::string{};
  state_ = state::header;
  return progress::more;
}

} // namespace kvasir
