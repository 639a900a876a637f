#include "backends/eviction_policy.hpp"

#include "backends/lru_policy.hpp"
#include "backends/s3fifo_policy.hpp"
#include "messages/errc.hpp"

#include <string>

namespace kvasir {

caf::expected<std::unique_ptr<eviction_policy>> make_eviction_policy(std::string_view name) {
  if (name == "s3fifo")
    return std::unique_ptr<eviction_policy>{std::make_unique<s3fifo_policy>()};
  if (name == "lru")
    return std::unique_ptr<eviction_policy>{std::make_unique<lru_policy>()};
  return caf::make_error(errc::invalid_argument, "unknown eviction policy \""
                                                   + std::string{name}
                                                   + "\": known are s3fifo and lru");
}

} // namespace kvasir
