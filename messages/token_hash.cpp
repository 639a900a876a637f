#include "messages/token_hash.hpp"

#include "messages/digest.hpp"

#include <blake3.h>
#include <caf/config.hpp>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

namespace kvasir::mp {

namespace {

static_assert(std::endian::native == std::endian::little, "tokens are digested as they are");

class blake3_hash {
public:
  blake3_hash() { blake3_hasher_init(&state_); }

  void update(std::span<const std::byte> bytes) {
    blake3_hasher_update(&state_, bytes.data(), bytes.size());
  }

  token_hash finish() {
    token_hash result;
    blake3_hasher_finalize(&state_, reinterpret_cast<uint8_t*>(result.data()), result.size());
    return result;
  }

private:
  blake3_hasher state_;
};

class sha256_hash {
public:
  sha256_hash() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }

  token_hash finish() {
    token_hash result;
    check(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(result.data()),
                             nullptr)
          == 1);
    return result;
  }

private:
  /// SHA-256 fails only where memory is exhausted or libcrypto was set up without it.
  static void check(bool succeeded) {
    if (!succeeded)
      CAF_CRITICAL("libcrypto has no SHA-256");
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// Collects small pieces in front of a hash, on the stack.
template <class Hash>
class buffered {
public:
  void put(std::byte value) {
    if (used_ == buffer_.size())
      flush();
    buffer_[used_++] = value;
  }

  void put(std::span<const std::byte> bytes) {
    flush();
    hash_.update(bytes);
  }

  void put_big_endian(uint32_t value, size_t size) {
    for (auto shift = 8 * size; shift > 0; shift -= 8)
      put(static_cast<std::byte>(value >> (shift - 8)));
  }

  token_hash finish() {
    flush();
    return hash_.finish();
  }

private:
  void flush() {
    hash_.update(std::span{buffer_}.first(used_));
    used_ = 0;
  }

  Hash hash_;
  std::array<std::byte, 2048> buffer_;
  size_t used_ = 0;
};

/// The head of a CBOR item: its major type and its number, as short as it can be written.
void put_cbor_head(buffered<sha256_hash>& out, unsigned major_type, uint32_t number) {
  const auto head = [&](uint32_t low) {
    out.put(static_cast<std::byte>(major_type << 5 | low));
  };
  if (number < 24) {
    head(number);
  } else if (number < 0x100) {
    head(24);
    out.put_big_endian(number, 1);
  } else if (number < 0x10000) {
    head(25);
    out.put_big_endian(number, 2);
  } else {
    head(26);
    out.put_big_endian(number, 4);
  }
}

constexpr unsigned cbor_uint = 0;
constexpr unsigned cbor_bytes = 2;
constexpr unsigned cbor_text = 3;
constexpr unsigned cbor_array = 4;
constexpr std::byte cbor_null{0xf6};

token_hash hash_blake3(const token_hash& previous, std::span<const uint32_t> tokens) {
  blake3_hash hash;
  hash.update(previous);
  std::array<uint32_t, 512> swapped;
  while (!tokens.empty()) {
    const auto piece = tokens.first(std::min(tokens.size(), swapped.size()));
    std::transform(piece.begin(), piece.end(), swapped.begin(),
                   [](uint32_t token) { return __builtin_bswap32(token); });
    hash.update(std::as_bytes(std::span{swapped}.first(piece.size())));
    tokens = tokens.subspan(piece.size());
  }
  return hash.finish();
}

token_hash hash_sha256_cbor(const token_hash& previous, std::span<const uint32_t> tokens) {
  buffered<sha256_hash> out;
  put_cbor_head(out, cbor_array, 3);
  put_cbor_head(out, cbor_bytes, static_cast<uint32_t>(previous.size()));
  out.put(previous);
  put_cbor_head(out, cbor_array, static_cast<uint32_t>(tokens.size()));
  for (const auto token : tokens)
    put_cbor_head(out, cbor_uint, token);
  out.put(cbor_null);
  return out.finish();
}

void keep_bits(token_hash& hash, unsigned bits) {
  for (size_t i = 0; i < hash.size(); ++i) {
    const auto kept = std::clamp(static_cast<int>(bits) - static_cast<int>(8 * i), 0, 8);
    hash[i] &= static_cast<std::byte>(0xff00 >> kept);
  }
}

} // namespace

caf::expected<token_hash_algorithm> parse_token_hash_algorithm(std::string_view name) {
  if (name == "blake3")
    return token_hash_algorithm::blake3;
  if (name == "sha256_cbor")
    return token_hash_algorithm::sha256_cbor;
  std::string why = "hash algorithm \"" + std::string{name.substr(0, 64)} + "\": ";
  if (name == "builtin")
    why += "Python's hash() differs from one process to the next";
  else if (name == "sha256")
    why += "hashes Python's pickle of the tokens, which differs between Python versions";
  else
    why += "unknown";
  return caf::make_error(errc::invalid_argument, why + "; use blake3 or sha256_cbor");
}

token_hash none_hash(token_hash_algorithm algorithm, std::string_view python_hash_seed) {
  if (algorithm == token_hash_algorithm::blake3) {
    blake3_hash hash;
    hash.update(std::array<std::byte, 12>{}); // the number 0 in 8 bytes, then token 0
    return hash.finish();
  }
  buffered<sha256_hash> out;
  put_cbor_head(out, cbor_text, static_cast<uint32_t>(python_hash_seed.size()));
  out.put(std::as_bytes(std::span{python_hash_seed}));
  return out.finish();
}

token_hasher::token_hasher(token_hash_algorithm algorithm, const token_hash& none,
                           uint32_t chunk_size, unsigned hash_bits)
  : algorithm_(algorithm),
    none_(none),
    chunk_size_(chunk_size),
    hash_bits_(hash_bits) {
  if (chunk_size == 0 || hash_bits == 0 || hash_bits > 256)
    CAF_CRITICAL("token_hasher: chunk_size or hash_bits out of range");
}

token_hash token_hasher::next(const token_hash& previous,
                              std::span<const uint32_t> tokens) const {
  auto result = algorithm_ == token_hash_algorithm::blake3 ? hash_blake3(previous, tokens)
                                                           : hash_sha256_cbor(previous, tokens);
  if (hash_bits_ < 256)
    keep_bits(result, hash_bits_);
  return result;
}

size_t token_chain::extend(std::span<const uint32_t> tokens) {
  const size_t chunk_size = hasher_.chunk_size();
  const auto shared = std::min(tokens.size(), tokens_.size());
  // memcmp first: the usual case has no difference, and mismatch is not vectorised.
  if (shared > 0
      && std::memcmp(tokens.data(), tokens_.data(), shared * sizeof(uint32_t)) != 0) {
    const auto equal = static_cast<size_t>(
      std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first
      - tokens_.begin());
    tokens_.resize(equal);
    chunks_.resize(equal / chunk_size);
  }
  if (tokens.size() > tokens_.size()) {
    const auto added = tokens.subspan(tokens_.size());
    tokens_.insert(tokens_.end(), added.begin(), added.end());
  }
  chunks_.reserve(tokens_.size() / chunk_size);
  while (chunks_.size() < tokens_.size() / chunk_size) {
    const auto chunk = std::span{tokens_}.subspan(chunks_.size() * chunk_size, chunk_size);
    const auto seed = chunks_.empty() ? 0 : chunks_.back().digest;
    const auto& previous = chunks_.empty() ? hasher_.none() : chunks_.back().hash;
    chunks_.push_back({hasher_.next(previous, chunk), digest64(std::as_bytes(chunk), seed)});
  }
  return tokens.size() / chunk_size;
}

} // namespace kvasir::mp
