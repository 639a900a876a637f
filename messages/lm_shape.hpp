// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "messages/object.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// Shapes on the wire: always four int32, missing trailing dimensions are 0.
///
/// The four numbers are kept verbatim (`object_layout::shape`), which is what LMCache's own
/// strip-and-pad-again amounts to; only whoever multiplies them needs the stripped form.
///
/// Threading: pure functions.
/// Source: LMCache 0.5.6 `pad_shape_to_4d`, `strip_shape_padding`.
namespace kvasir::lm {

/// Pads with 0 to four dimensions. No dimension at all (a scalar) is 0,0,0,0.
/// @returns nothing for more than four: the wire has no room for them.
std::optional<std::array<int32_t, 4>> pad_shape(std::span<const int32_t> dims);

/// How many of the four dimensions LMCache hands to torch: trailing zeros are dropped, at
/// least one is kept.
/// Compat: BINARY and BINARY_BUFFER (4, 5) keep all four, because [size,0,0,0] is their shape.
size_t dim_count(const object_layout& layout);

/// Size of the buffer that LMCache's client sets aside for this layout: the product of the
/// stripped dimensions times the item size.
/// @returns nothing for a negative dimension, or if the product exceeds 64 bits.
/// Meaningless for formats 4 and 5 and for dtype 0, where it is 0.
std::optional<uint64_t> byte_size(const object_layout& layout);

/// Must an object of `length_bytes` bytes with this layout never be handed out as a hit?
///
/// The stock client allocates by shape and dtype, then receives `length` bytes into that. More
/// bytes than it has room for raise "buffer too small" and stay unread in the socket, and each
/// later operation of that client reads rubbish. It happens with every model that has several
/// KV groups: lm:// sends the bytes of all groups, but the shape of the first only. So a hit is
/// harmful if `length_bytes` exceeds `byte_size`, or if no tensor has this shape at all.
///
/// Not a contradiction: fewer bytes than the shape has room for (recorded as a hit in
/// `put_length_not_matching_shape`; the client does not lose its place), formats 4 and 5 and
/// dtype 0 (opaque bytes), and a shape of four zeros, which says nothing (LMCache's raw probes
/// PUT that way and expect a hit).
///
/// Compat: differs from lmcache_server, which checks nothing. Among its recorded transcripts
/// the five that PUT one byte too many (put_get_dtype_6, _7, _8, put_get_layer_key,
/// put_get_tags) are hits there and misses here.
/// Source: LMCache 0.5.6 `lm_connector.py` (receive into the allocated object), observed with
/// the real client.
bool contradicts(const object_layout& layout, uint64_t length_bytes);

} // namespace kvasir::lm
