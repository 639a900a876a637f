#include "messages/key_digest.hpp"

#include <blake3.h>

#include <array>
#include <bit>

namespace kvasir {

static_assert(std::endian::native == std::endian::little,
              "digests mean nothing on other hosts");

index_digest digest_of(const object_key& key) {
  blake3_hasher state;
  blake3_hasher_init(&state);
  blake3_hasher_update(&state, key.bytes.data(), key.bytes.size());
  std::array<uint8_t, sizeof(index_digest)> bytes;
  blake3_hasher_finalize(&state, bytes.data(), bytes.size());
  return std::bit_cast<index_digest>(bytes);
}

} // namespace kvasir
