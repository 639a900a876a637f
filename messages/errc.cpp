#include "messages/errc.hpp"

namespace kvasir {

std::string to_string(errc code) {
  switch (code) {
    case errc::not_found:
      return "not_found";
    case errc::already_exists:
      return "already_exists";
    case errc::invalid_argument:
      return "invalid_argument";
    case errc::malformed_frame:
      return "malformed_frame";
    case errc::layout_mismatch:
      return "layout_mismatch";
    case errc::not_reserved:
      return "not_reserved";
    case errc::too_large:
      return "too_large";
    case errc::out_of_memory:
      return "out_of_memory";
    case errc::busy:
      return "busy";
    case errc::timed_out:
      return "timed_out";
    case errc::cancelled:
      return "cancelled";
    case errc::io_error:
      return "io_error";
    case errc::peer_unreachable:
      return "peer_unreachable";
    case errc::device_error:
      return "device_error";
    case errc::checksum_mismatch:
      return "checksum_mismatch";
  }
  return "unknown";
}

} // namespace kvasir
