#include "fuzz/mp_request_properties.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* broken
    = kvasir::mp::properties::check_request(std::as_bytes(std::span{data, size}));
  if (broken != nullptr) {
    std::fprintf(stderr, "property: %s\n", broken);
    std::abort();
  }
  return 0;
}
