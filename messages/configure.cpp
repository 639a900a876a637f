#include "messages/configure.hpp"

#include "messages/chunk_messages.hpp"
#include "messages/engine_messages.hpp"
#include "messages/event_messages.hpp"
#include "messages/front_door_messages.hpp"
#include "messages/session_messages.hpp"
#include "messages/storage_messages.hpp"

#include <caf/actor_system_config.hpp>

namespace kvasir {

void configure(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::kvasir>();
  config.add_message_types<caf::id_block::kvasir_doors>();
  config.add_message_types<caf::id_block::kvasir_chunks>();
  config.add_message_types<caf::id_block::kvasir_sessions>();
  config.add_message_types<caf::id_block::kvasir_engines>();
  config.add_message_types<caf::id_block::kvasir_events>();
  config.add_error_category(
    caf::atom("kvasir"), [](uint8_t code, caf::atom_value, const caf::message& context) {
      return to_string(static_cast<errc>(code)) + (context.empty() ? "" : to_string(context));
    });
}

} // namespace kvasir
