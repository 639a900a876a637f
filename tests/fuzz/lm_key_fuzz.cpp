#include "fuzz/lm_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvasir::lm::properties;
  return require(check_key({reinterpret_cast<const char*>(data), size}));
}
