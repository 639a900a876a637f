#include "messages/digest.hpp"

#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h> // redirects the XXH3 names below to the run-time choice
#endif

namespace kvasir {

uint64_t digest64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

} // namespace kvasir
