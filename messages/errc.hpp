// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/error.hpp>
#include <caf/make_message.hpp> // must precede CAF_ERROR_CODE_ENUM

#include <cstdint>
#include <string>

namespace kvasir {

/// Why a request failed, grouped by what the caller does next.
///
/// The numbers travel between nodes inside `caf::error`: never renumber or reuse one; a new
/// code goes to the end of its group. 0 is CAF's "no error".
enum class errc : uint8_t {
  // -- 10: an ordinary outcome, carry on ------------------------------------------------
  not_found = 10, ///< No readable object under this key.
  already_exists, ///< The key holds a complete object; its bytes were left alone.

  // -- 30: the request is wrong, repeating it cannot help -------------------------------
  invalid_argument = 30, ///< A field lies outside its documented range.
  malformed_frame,       ///< Bytes on the wire do not parse.
  layout_mismatch,       ///< Shape or dtype contradict the length or the stored object.
  not_reserved,          ///< No such lease: it was released, aborted, or its owner ended.
  too_large,             ///< The object exceeds the largest size this node accepts.

  // -- 60: try again later or elsewhere -------------------------------------------------
  out_of_memory = 60, ///< No room even after evicting all that may be evicted.
  busy,               ///< A limit on work in flight is reached.
  timed_out,          ///< The deadline passed; the outcome is unknown.
  cancelled,          ///< Its asker took it back, or its client was closed.

  // -- 90: the environment failed -------------------------------------------------------
  io_error = 90,    ///< A file, segment or socket operation failed; the context names it.
  peer_unreachable, ///< The other process is gone.
  device_error,     ///< CUDA or NCCL failed; the context has its text.

  // -- 120: do not trust the data -------------------------------------------------------
  checksum_mismatch = 120, ///< The bytes differ from those that were published.
};

/// The code's name as written above; "unknown" for a code of a newer peer.
std::string to_string(errc code);

} // namespace kvasir

// CAF 0.17 keeps the category in an atom: at most ten characters.
CAF_ERROR_CODE_ENUM(kvasir::errc, "kvasir")
