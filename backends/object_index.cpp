#include "backends/object_index.hpp"

#include "messages/errc.hpp"

#include <algorithm>
#include <utility>

namespace kvasir {

using namespace index_format;

namespace {

constexpr uint64_t entries_per_object = 4;

} // namespace

caf::expected<std::unique_ptr<object_index>> object_index::create(uint64_t max_objects) {
  auto set_count = max_objects * entries_per_object / ways + 1;
  if (max_objects == 0 || max_objects > max_sets * ways / entries_per_object
      || set_count > max_sets)
    return caf::make_error(errc::invalid_argument,
                           "an index of " + std::to_string(max_objects) + " objects");
  auto memory = sealed_memory::create("kvasir_index", total_bytes(set_count),
                                      sealed_memory::access::ours);
  if (!memory)
    return std::move(memory.error());
  return std::unique_ptr<object_index>{new object_index{std::move(*memory), set_count}};
}

object_index::object_index(sealed_memory memory, uint64_t set_count)
  : memory_(std::move(memory)),
    set_count_(set_count) {
  auto& head = header();
  head.set_count.store(set_count, std::memory_order_relaxed);
  head.version.store(index_format::version, std::memory_order_relaxed);
  head.magic.store(index_format::magic, std::memory_order_release);
}

index_format::header& object_index::header() const noexcept {
  return *reinterpret_cast<index_format::header*>(memory_.data());
}

entry& object_index::entry_at(uint32_t number) const noexcept {
  return reinterpret_cast<entry*>(memory_.data() + header_bytes)[number];
}

overflow_count& object_index::overflow_of(const index_digest& digest) const noexcept {
  auto* counts = memory_.data() + header_bytes + set_count_ * sizeof(set);
  return reinterpret_cast<overflow_count*>(counts)[set_of(digest, set_count_)];
}

uint64_t object_index::flags_of(uint64_t more) const noexcept {
  return (uint64_t{epoch_} << epoch_shift) | used_flag | more;
}

/// The last store is sequentially consistent, as the loads of `still` and of the hold board are:
/// docs/decisions/0011 has the argument.
template <class Function>
void object_index::change(entry& changed, Function write) {
  auto before = changed.version.load(std::memory_order_relaxed);
  changed.version.store(before | 1, std::memory_order_relaxed);
  write();
  changed.version.store((before | 1) + 1, std::memory_order_seq_cst);
}

std::optional<uint32_t> object_index::put(const index_digest& digest, const slot& where,
                                          uint64_t checksum, bool sealed) {
  constexpr auto order = std::memory_order_release;
  auto first = static_cast<uint32_t>(set_of(digest, set_count_)) * ways;
  for (auto number = first; number < first + ways; ++number) {
    auto& free = entry_at(number);
    if ((free.flags.load(std::memory_order_relaxed) & used_flag) != 0)
      continue;
    change(free, [&] {
      free.digest_low.store(digest.low, order);
      free.digest_high.store(digest.high, order);
      free.offset_bytes.store(where.offset_bytes, order);
      free.size_bytes.store(where.size_bytes, order);
      free.generation.store(where.generation, order);
      free.checksum.store(checksum, order);
      free.flags.store(flags_of(sealed ? sealed_flag : 0), order);
    });
    ++objects_;
    return number;
  }
  if (overflow_of(digest).fetch_add(1, std::memory_order_release) == 0)
    ++overflowed_sets_;
  ++refused_;
  return std::nullopt;
}

void object_index::forget(const index_digest& digest) {
  if (overflow_of(digest).fetch_sub(1, std::memory_order_release) == 1)
    --overflowed_sets_;
}

void object_index::seal(uint32_t number, uint64_t checksum) {
  auto& sealed = entry_at(number);
  change(sealed, [&] {
    sealed.checksum.store(checksum, std::memory_order_release);
    sealed.flags.store(sealed.flags.load(std::memory_order_relaxed) | sealed_flag,
                       std::memory_order_release);
  });
}

void object_index::freeze(uint32_t number) {
  auto& version = entry_at(number).version;
  version.store(version.load(std::memory_order_relaxed) | 1, std::memory_order_seq_cst);
}

/// The version of before, for it is the entry of before: who found it meanwhile found it whole.
void object_index::thaw(uint32_t number) {
  auto& version = entry_at(number).version;
  version.store(version.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

void object_index::erase(uint32_t number) {
  auto& gone = entry_at(number);
  change(gone, [&] { gone.flags.store(0, std::memory_order_release); });
  --objects_;
}

void object_index::clear() {
  header().epoch.store(++epoch_, std::memory_order_release);
}

void object_index::keep(uint32_t number) {
  auto& kept = entry_at(number);
  auto sealed = kept.flags.load(std::memory_order_relaxed) & sealed_flag;
  change(kept, [&] { kept.flags.store(flags_of(sealed), std::memory_order_release); });
}

slot object_index::where(uint32_t number) const noexcept {
  constexpr auto order = std::memory_order_relaxed;
  if (number >= entry_count())
    return {};
  auto& found = entry_at(number);
  if ((found.flags.load(order) & used_flag) == 0)
    return {};
  return {found.offset_bytes.load(order), found.size_bytes.load(order),
          found.generation.load(order)};
}

} // namespace kvasir
