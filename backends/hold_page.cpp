#include "backends/hold_page.hpp"

#include "messages/errc.hpp"

#include <utility>

namespace kvasir {

using namespace hold_page_format;

caf::expected<hold_page> hold_page::map(int fd) {
  auto memory = sealed_memory::map(fd, true, sizeof(page));
  if (!memory)
    return std::move(memory.error());
  auto& mapped = *reinterpret_cast<const page*>(memory->data());
  if (memory->size_bytes() != sizeof(page)
      || mapped.magic.load(std::memory_order_acquire) != hold_page_format::magic
      || mapped.version.load(std::memory_order_relaxed) != hold_page_format::version)
    return caf::make_error(errc::invalid_argument, "no hold page of this version");
  return hold_page{std::move(*memory)};
}

hold_page::hold_page(sealed_memory memory)
  : memory_(std::move(memory)),
    page_(reinterpret_cast<page*>(memory_.data())) {}

bool hold_page::take(uint32_t record, uint64_t what) noexcept {
  auto& at = page_->records[record];
  uint64_t expected = 0;
  return at.load(std::memory_order_relaxed) == 0
         && at.compare_exchange_strong(expected, what, std::memory_order_seq_cst);
}

std::optional<uint32_t> hold_page::publish(const slot& where) noexcept {
  auto what = packed(where);
  auto first = group_of(what) * group_records;
  for (auto record = first; record < first + group_records; ++record)
    if (take(record, what))
      return record;
  for (uint32_t i = 0; i < spill_records; ++i) {
    if (page_->records[spill_begin + i].load(std::memory_order_relaxed) != 0)
      continue;
    // First: whoever looks for the record after it was published must look this far.
    auto used = page_->spill_used.load(std::memory_order_seq_cst);
    while (
      used < i + 1
      && !page_->spill_used.compare_exchange_weak(used, i + 1, std::memory_order_seq_cst)) {
    }
    if (take(spill_begin + i, what))
      return spill_begin + i;
  }
  return std::nullopt;
}

void hold_page::withdraw(uint32_t record) noexcept {
  page_->records[record].store(0, std::memory_order_release);
}

void hold_page::touch(uint32_t entry) noexcept {
  auto at = page_->touched.fetch_add(1, std::memory_order_relaxed);
  page_->ring[at % ring_size].store(uint64_t{entry} + 1, std::memory_order_relaxed);
}

} // namespace kvasir
