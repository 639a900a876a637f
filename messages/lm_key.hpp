// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/lm_tables.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The keys of lm://, and the one spelling under which an object is filed.
///
///   model@world_size@worker_id@hash_hex@dtype[@layer_id][@tag%value]*
///
/// Python's server compares keys after parsing them, so many spellings name one object. Here
/// they are brought into that object's *canonical* spelling, which is what LMCache's client
/// writes: no blanks around the key, decimal and lower-case hexadecimal numbers without `+`,
/// leading zeros, `0x` or `_`, no `-0`, each tag once.
///
/// What does not parse but is printable UTF-8 is a *raw* key, kept byte for byte without the
/// blanks around it (older LMCache wrote `engine@model@…`, which 0.5.6 refuses). A raw key
/// never equals a canonical one, because a canonical one parses.
///
/// Threading: pure functions.
/// Source: LMCache 0.5.6 `CacheEngineKey.from_string`, CPython 3.11 `int()`, `str.strip`,
/// `str.isdigit`; recorded in `tests/golden/lm/keys.json` and `key_strings.json`.
/// Compat: where kvasir differs from lmcache_server:
///   - A key whose canonical form would hold a control character is an error, also inside a
///     model or tag where Python takes it (golden `model_newline`): keys are listed one a line.
///     Blanks that Python drops (around the key, around a number) may be any it drops.
///   - A key that Python cannot parse is a raw key instead of a closed connection.
///   - `…@b%1@a%x @b%2` has no spelling that reads back as itself (the value of `a` would end
///   the
///     key and lose its blank), so it stays raw.
namespace kvasir::lm {

struct key_tag {
  std::string name;
  std::string value;

  friend bool operator==(const key_tag&, const key_tag&) = default;
};

/// LMCache's CacheEngineKey, or its LayerCacheEngineKey if `layer_id` is set. The numbers stay
/// canonical text: Python's have no largest value (a hash of 256 bits is ordinary).
struct cache_key {
  std::string model;      ///< May be empty; never holds `@`.
  std::string world_size; ///< Decimal, may be negative.
  std::string worker_id;  ///< Decimal, may be negative.
  std::string chunk_hash; ///< Lower-case hexadecimal, may be negative (vLLM's builtin hash is).
  std::string dtype;      ///< One of `key_dtypes`.
  std::optional<std::string> layer_id; ///< Decimal, not negative.
  std::vector<key_tag> tags;           ///< Order matters; names differ from each other.

  friend bool operator==(const cache_key&, const cache_key&) = default;
};

/// Reads any spelling of a key. Takes any bytes of any size.
/// @returns nothing where Python's server fails.
std::optional<cache_key> parse_key(std::string_view text);

/// The canonical spelling. @pre `key` came from `parse_key`, or keeps its fields' rules.
std::string to_string(const cache_key& key);

enum class key_kind : uint8_t { chunk, layer, raw };

enum class key_fault : uint8_t {
  none,
  empty,             ///< Nothing but blanks.
  invalid_utf8,      ///< Python's strict decoder would fail.
  control_character, ///< NUL padding, a newline inside a name, …
  too_long,          ///< More than 150 bytes of text; cannot happen with a field.
};

/// One sentence part for logs, e.g. "invalid UTF-8".
std::string_view to_string(key_fault fault);

struct key_result {
  std::string bytes; ///< Canonical spelling or trimmed raw key; empty on a fault.
  key_kind kind = key_kind::raw;
  key_fault fault = key_fault::none;

  explicit operator bool() const { return fault == key_fault::none; }
  friend bool operator==(const key_result&, const key_result&) = default;
};

/// The spelling under which the key in a request header is filed: at most 150 bytes of
/// printable UTF-8, never empty. Idempotent: what it returns is returned again for itself.
/// A canonical ASCII key with at most one tag costs one pass and one copy
/// (`kvasir_lm_codec_bench`).
key_result canonical_key(std::span<const std::byte, max_key_size> field);

/// The same for text from elsewhere, e.g. a command line.
key_result canonical_key(std::string_view text);

/// What `canonical_key` does without its fast path. For tests: both must agree.
key_result canonical_key_slow(std::string_view text);

} // namespace kvasir::lm
