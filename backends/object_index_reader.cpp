#include "backends/object_index_reader.hpp"

#include "messages/errc.hpp"

#include <utility>

namespace kvasir {

using namespace index_format;

namespace {

constexpr int max_looks = 64;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

} // namespace

caf::expected<object_index_reader> object_index_reader::map(int fd) {
  auto memory = sealed_memory::map(fd, false, total_bytes(1));
  if (!memory)
    return std::move(memory.error());
  auto& head = *reinterpret_cast<const header*>(memory->data());
  auto set_count = head.set_count.load(std::memory_order_relaxed);
  if (head.magic.load(std::memory_order_acquire) != index_format::magic
      || head.version.load(std::memory_order_relaxed) != index_format::version || set_count == 0
      || set_count > max_sets || memory->size_bytes() != total_bytes(set_count))
    return caf::make_error(errc::invalid_argument, "no object index of this version");
  return object_index_reader{std::move(*memory), set_count};
}

object_index_reader::object_index_reader(sealed_memory memory, uint64_t set_count)
  : memory_(std::move(memory)),
    set_count_(set_count),
    header_(reinterpret_cast<const header*>(memory_.data())),
    entries_(reinterpret_cast<const entry*>(memory_.data() + header_bytes)),
    overflows_(reinterpret_cast<const overflow_count*>(memory_.data() + header_bytes
                                                       + set_count * sizeof(set))) {}

object_index_reader::found object_index_reader::look_at(uint32_t number,
                                                        const index_digest& digest,
                                                        uint64_t epoch,
                                                        indexed_object& out) const noexcept {
  constexpr auto order = std::memory_order_acquire;
  auto& at = entries_[number];
  for (auto look = 0; look < max_looks; ++look) {
    auto version = at.version.load(order);
    if ((version & 1) != 0) {
      pause();
      continue;
    }
    auto same
      = at.digest_low.load(order) == digest.low && at.digest_high.load(order) == digest.high;
    auto flags = same ? at.flags.load(order) : 0;
    indexed_object seen;
    if (flags != 0)
      seen
        = {{at.offset_bytes.load(order), at.size_bytes.load(order), at.generation.load(order)},
           at.checksum.load(order),
           (flags & sealed_flag) != 0,
           number,
           version};
    if (at.version.load(std::memory_order_relaxed) != version)
      continue;
    if ((flags & used_flag) == 0 || flags >> epoch_shift != epoch)
      return found::no;
    out = seen;
    return found::yes;
  }
  return found::unknown;
}

object_index_reader::found object_index_reader::find(const index_digest& digest,
                                                     indexed_object& out) const noexcept {
  auto set = set_of(digest, set_count_);
  auto epoch = header_->epoch.load(std::memory_order_acquire);
  auto result = found::no;
  for (uint32_t way = 0; way < ways; ++way) {
    auto looked = look_at(static_cast<uint32_t>(set) * ways + way, digest, epoch, out);
    if (looked == found::yes)
      return found::yes;
    if (looked == found::unknown)
      result = found::unknown;
  }
  return overflows_[set].load(std::memory_order_acquire) != 0 ? found::unknown : result;
}

void object_index_reader::prefetch(const index_digest& digest) const noexcept {
  __builtin_prefetch(&entries_[set_of(digest, set_count_) * ways]);
}

bool object_index_reader::still(const indexed_object& object) const noexcept {
  return entries_[object.entry].version.load(std::memory_order_seq_cst) == object.version;
}

} // namespace kvasir
