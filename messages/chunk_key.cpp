#include "messages/chunk_key.hpp"

#include <algorithm>

namespace kvasir::mp {

namespace {

constexpr size_t rank_at = 2;
constexpr size_t layout_at = 6;
constexpr size_t hash_at = 14;
constexpr size_t digest_at = 46;
constexpr size_t salt_size_at = 54;
constexpr size_t salt_at = 56;
constexpr char format = 1;

void put(std::string& text, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    text[at + i] = static_cast<char>(value >> (8 * (bytes - 1 - i)));
}

uint64_t get(std::string_view text, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i)
    value = value << 8 | static_cast<unsigned char>(text[at + i]);
  return value;
}

uint32_t kv_rank(uint32_t world_size, uint32_t rank) {
  return world_size << 24 | rank << 16 | world_size << 8 | rank;
}

} // namespace

chunk_key_prefix::chunk_key_prefix(uint32_t world_size, uint64_t layout_digest,
                                   std::string_view salt, std::string_view model)
  : world_size_(world_size),
    text_(salt_at, '\0') {
  text_[1] = format;
  put(text_, layout_at, layout_digest, 8);
  put(text_, salt_size_at, salt.size(), 2);
  text_.append(salt);
  text_.append(model);
}

object_key chunk_key_prefix::key(const chunk_identity& chunk, uint32_t rank) const {
  object_key result{text_};
  put(result.bytes, rank_at, kv_rank(world_size_, rank), 4);
  std::transform(chunk.hash.begin(), chunk.hash.end(), result.bytes.begin() + hash_at,
                 [](std::byte b) { return static_cast<char>(b); });
  put(result.bytes, digest_at, chunk.digest, 8);
  return result;
}

std::optional<chunk_key> parse_chunk_key(std::string_view bytes) {
  if (bytes.size() < salt_at || bytes[0] != '\0' || bytes[1] != format)
    return std::nullopt;
  auto ranks = static_cast<uint32_t>(get(bytes, rank_at, 4));
  auto world_size = ranks >> 24;
  auto rank = ranks & 0xff;
  auto salt_size = static_cast<size_t>(get(bytes, salt_size_at, 2));
  if (rank >= world_size || ranks != kv_rank(world_size, rank)
      || salt_at + salt_size > bytes.size())
    return std::nullopt;
  chunk_identity chunk{};
  std::transform(bytes.begin() + hash_at, bytes.begin() + digest_at, chunk.hash.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  chunk.digest = get(bytes, digest_at, 8);
  return chunk_key{chunk,
                   world_size,
                   rank,
                   get(bytes, layout_at, 8),
                   std::string{bytes.substr(salt_at, salt_size)},
                   std::string{bytes.substr(salt_at + salt_size)}};
}

std::string display_text(const chunk_key& key) {
  static constexpr char digits[] = "0123456789abcdef";
  auto text
    = key.model + "@" + std::to_string(key.world_size) + "@" + std::to_string(key.rank) + "@";
  for (auto b : key.chunk.hash) {
    text += digits[std::to_integer<unsigned>(b) >> 4];
    text += digits[std::to_integer<unsigned>(b) & 0xf];
  }
  if (!key.salt.empty())
    text += "@" + key.salt;
  return text;
}

} // namespace kvasir::mp
