#include "backends/checksum.hpp"

#define XXH_STATIC_LINKING_ONLY // the state's size, so that it needs no second allocation
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h> // redirects the XXH3 names below to the run-time choice
#endif

#include <algorithm>
#include <cstring>
#include <new>

namespace kvasir {

namespace {

/// Small enough to be hashed while it is still in the core's cache.
constexpr size_t piece_bytes = 64 << 10;

} // namespace

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct checksum_stream::state {
  XXH3_state_t xxh; // aligned to 64 by its own declaration
};

checksum_stream::checksum_stream() : state_(std::make_unique<state>()) {
  XXH3_INITSTATE(&state_->xxh);
  reset();
}

checksum_stream::~checksum_stream() = default;
checksum_stream::checksum_stream(checksum_stream&&) noexcept = default;
checksum_stream& checksum_stream::operator=(checksum_stream&&) noexcept = default;

void checksum_stream::reset() {
  XXH3_64bits_reset(&state_->xxh);
}

void checksum_stream::update(std::span<const std::byte> bytes) {
  if (!bytes.empty())
    XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t checksum_stream::digest() const {
  return XXH3_64bits_digest(&state_->xxh);
}

uint64_t copy_and_checksum(std::byte* to, std::span<const std::byte> from) {
  checksum_stream hash;
  for (size_t at = 0; at < from.size(); at += piece_bytes) {
    auto piece = from.subspan(at, std::min(piece_bytes, from.size() - at));
    std::memcpy(to + at, piece.data(), piece.size());
    hash.update({to + at, piece.size()});
  }
  return hash.digest();
}

} // namespace kvasir
