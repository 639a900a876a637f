#include "actors/lm_outbox.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace kvasir {

void lm_outbox::add(std::span<const std::byte> bytes) {
  copied_.insert(copied_.end(), bytes.begin(), bytes.end());
}

void lm_outbox::add_value(std::span<const std::byte> bytes, lease_id lease) {
  values_.push_back({copied_.size(), bytes, lease});
}

lm_outbox::result lm_outbox::flush(int fd, uint64_t& sent_bytes) {
  while (copied_sent_ < copied_.size() || value_index_ < values_.size()) {
    std::array<iovec, 2 * max_values + 1> pieces;
    size_t count = 0;
    auto put = [&](const std::byte* from, size_t size) {
      if (size > 0)
        pieces[count++] = {const_cast<std::byte*>(from), size};
    };
    auto copied = copied_sent_;
    auto skip = value_sent_;
    auto last = std::min(values_.size(), value_index_ + max_values);
    for (auto i = value_index_; i < last; ++i) {
      auto& next = values_[i];
      put(copied_.data() + copied, next.copied_before - copied);
      copied = next.copied_before;
      put(next.bytes.data() + skip, next.bytes.size() - skip);
      skip = 0;
    }
    if (last == values_.size())
      put(copied_.data() + copied, copied_.size() - copied);
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    auto sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR)
        continue;
      return errno == EAGAIN ? result::blocked : result::failed;
    }
    sent_bytes += static_cast<uint64_t>(sent);
    advance(static_cast<size_t>(sent));
  }
  return result::done;
}

void lm_outbox::advance(size_t sent) {
  while (sent > 0) {
    auto before
      = value_index_ < values_.size() ? values_[value_index_].copied_before : copied_.size();
    auto step = std::min(sent, before - copied_sent_);
    copied_sent_ += step;
    sent -= step;
    if (sent == 0 || value_index_ == values_.size())
      continue;
    auto size = values_[value_index_].bytes.size();
    step = std::min(sent, size - value_sent_);
    value_sent_ += step;
    sent -= step;
    if (value_sent_ == size) {
      ++value_index_;
      value_sent_ = 0;
    }
  }
}

std::optional<lease_id> lm_outbox::take_sent() {
  if (reported_ < value_index_)
    return values_[reported_++].lease;
  if (value_index_ == values_.size() && copied_sent_ == copied_.size()) {
    values_.clear();
    copied_.clear();
    if (copied_.capacity() > 2 * max_copied_bytes) // A LIST was in there.
      copied_.shrink_to_fit();
    value_index_ = reported_ = copied_sent_ = 0;
  }
  return std::nullopt;
}

} // namespace kvasir
