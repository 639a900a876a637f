#include "backends/hold_board.hpp"

#include "messages/errc.hpp"

#include <utility>

namespace kvasir {

using namespace hold_page_format;

caf::expected<uint64_t> hold_board::add() {
  auto memory
    = sealed_memory::create("kvasir_holds", sizeof(page), sealed_memory::access::shared);
  if (!memory)
    return std::move(memory.error());
  auto& fresh = *reinterpret_cast<page*>(memory->data());
  fresh.version.store(hold_page_format::version, std::memory_order_relaxed);
  fresh.magic.store(hold_page_format::magic, std::memory_order_release);
  std::lock_guard guard{mutex_};
  if (engines_.size() >= max_engines)
    return caf::make_error(errc::busy, "too many engines joined");
  engines_.push_back({++last_id_, std::move(*memory), 0});
  return last_id_;
}

int hold_board::fd(uint64_t id) const {
  std::lock_guard guard{mutex_};
  for (auto& each : engines_)
    if (each.id == id)
      return each.memory.fd();
  return -1;
}

void hold_board::remove(uint64_t id) {
  std::lock_guard guard{mutex_};
  std::erase_if(engines_, [id](auto& each) { return each.id == id; });
}

size_t hold_board::engines() const {
  std::lock_guard guard{mutex_};
  return engines_.size();
}

bool hold_board::holds(const page& from, uint64_t record) {
  constexpr auto order = std::memory_order_seq_cst;
  auto first = group_of(record) * group_records;
  for (auto i = first; i < first + group_records; ++i)
    if (from.records[i].load(order) == record)
      return true;
  auto used = std::min<uint64_t>(from.spill_used.load(order), spill_records);
  for (uint64_t i = 0; i < used; ++i)
    if (from.records[spill_begin + i].load(order) == record)
      return true;
  return false;
}

bool hold_board::is_held(const slot& where) const {
  auto record = packed(where);
  std::lock_guard guard{mutex_};
  return std::any_of(engines_.begin(), engines_.end(),
                     [record](auto& each) { return holds(each.page(), record); });
}

} // namespace kvasir
