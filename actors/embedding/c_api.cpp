#include "actors/embedding/c_options.hpp"
#include "actors/embedding/c_outcome.hpp"

#include <array>
#include <cstddef>
#include <string>

/// The functions of the C interface that answer at once.

using namespace kvasir;

namespace {

static_assert(std::array{KVASIR_VERSION_MAJOR, KVASIR_VERSION_MINOR, KVASIR_VERSION_PATCH}
              == std::array{KVASIR_PROJECT_VERSION});

static_assert(KVASIR_NOT_FOUND == static_cast<int>(errc::not_found)
              && KVASIR_ALREADY_EXISTS == static_cast<int>(errc::already_exists)
              && KVASIR_INVALID_ARGUMENT == static_cast<int>(errc::invalid_argument)
              && KVASIR_MALFORMED_FRAME == static_cast<int>(errc::malformed_frame)
              && KVASIR_LAYOUT_MISMATCH == static_cast<int>(errc::layout_mismatch)
              && KVASIR_NOT_RESERVED == static_cast<int>(errc::not_reserved)
              && KVASIR_TOO_LARGE == static_cast<int>(errc::too_large)
              && KVASIR_OUT_OF_MEMORY == static_cast<int>(errc::out_of_memory)
              && KVASIR_BUSY == static_cast<int>(errc::busy)
              && KVASIR_TIMED_OUT == static_cast<int>(errc::timed_out)
              && KVASIR_CANCELLED == static_cast<int>(errc::cancelled)
              && KVASIR_IO_ERROR == static_cast<int>(errc::io_error)
              && KVASIR_PEER_UNREACHABLE == static_cast<int>(errc::peer_unreachable)
              && KVASIR_DEVICE_ERROR == static_cast<int>(errc::device_error)
              && KVASIR_CHECKSUM_MISMATCH == static_cast<int>(errc::checksum_mismatch));

caf::expected<std::span<const uint32_t>> tokens_of(const uint32_t* tokens, size_t count) {
  if (tokens == nullptr && count > 0)
    return caf::make_error(errc::invalid_argument, "the tokens are NULL");
  return std::span{tokens, count};
}

} // namespace

extern "C" {

uint32_t kvasir_version(void) {
  return KVASIR_VERSION_MAJOR << 16 | KVASIR_VERSION_MINOR << 8 | KVASIR_VERSION_PATCH;
}

const char* kvasir_code_name(int32_t code) {
  switch (code) {
    case KVASIR_OK:
      return "ok";
    case KVASIR_NOT_FOUND:
      return "not_found";
    case KVASIR_ALREADY_EXISTS:
      return "already_exists";
    case KVASIR_INVALID_ARGUMENT:
      return "invalid_argument";
    case KVASIR_MALFORMED_FRAME:
      return "malformed_frame";
    case KVASIR_LAYOUT_MISMATCH:
      return "layout_mismatch";
    case KVASIR_NOT_RESERVED:
      return "not_reserved";
    case KVASIR_TOO_LARGE:
      return "too_large";
    case KVASIR_OUT_OF_MEMORY:
      return "out_of_memory";
    case KVASIR_BUSY:
      return "busy";
    case KVASIR_TIMED_OUT:
      return "timed_out";
    case KVASIR_CANCELLED:
      return "cancelled";
    case KVASIR_IO_ERROR:
      return "io_error";
    case KVASIR_PEER_UNREACHABLE:
      return "peer_unreachable";
    case KVASIR_DEVICE_ERROR:
      return "device_error";
    case KVASIR_CHECKSUM_MISMATCH:
      return "checksum_mismatch";
    case KVASIR_INTERNAL:
      return "internal";
    default: // Any number.
      return "unknown";
  }
}

// -- the client -------------------------------------------------------------------------

kvasir_code kvasir_open(const kvasir_options* options, kvasir_client** client,
                        kvasir_error* error) {
  if (client == nullptr)
    return refuse(error, "there is nowhere to put the client");
  *client = nullptr;
  return guarded(error, [&] {
    auto wanted = read_options(options);
    if (!wanted)
      return report(error, wanted.error());
    auto core = engine_core::open(*wanted, nullptr);
    if (!core)
      return report(error, core.error());
    *client = new kvasir_client{byte_client{std::move(*core)}};
    return KVASIR_OK;
  });
}

void kvasir_client_close(kvasir_client* client) {
  if (client != nullptr)
    guarded(nullptr, [&] {
      client->bytes.close();
      return KVASIR_OK;
    });
}

void kvasir_client_free(kvasir_client* client) {
  kvasir_client_close(client);
  delete client;
}

uint64_t kvasir_chunk_bytes(const kvasir_client* client) {
  return client == nullptr ? 0 : client->bytes.options().layout.chunk_bytes();
}

uint64_t kvasir_layer_bytes(const kvasir_client* client) {
  return client == nullptr ? 0
                           : kvasir_chunk_bytes(client) / client->bytes.options().layout.layers;
}

// -- prompts ----------------------------------------------------------------------------

kvasir_code kvasir_prompt_make(const kvasir_client* client, const uint32_t* tokens,
                               size_t token_count, const char* salt, kvasir_prompt** prompt,
                               kvasir_error* error) {
  if (prompt == nullptr)
    return refuse(error, "there is nowhere to put the prompt");
  *prompt = nullptr;
  if (client == nullptr)
    return refuse(error, "the client is NULL");
  return guarded(error, [&] {
    auto given = tokens_of(tokens, token_count);
    if (!given)
      return report(error, given.error());
    auto made = client->bytes.make_prompt(*given, salt == nullptr ? "" : salt);
    if (!made)
      return report(error, made.error());
    *prompt = new kvasir_prompt{std::move(*made)};
    return KVASIR_OK;
  });
}

kvasir_code kvasir_prompt_extend(kvasir_prompt* prompt, const uint32_t* tokens,
                                 size_t token_count, kvasir_error* error) {
  if (prompt == nullptr)
    return refuse(error, "the prompt is NULL");
  return guarded(error, [&] {
    auto given = tokens_of(tokens, token_count);
    if (!given)
      return report(error, given.error());
    prompt->names.extend(*given);
    return KVASIR_OK;
  });
}

size_t kvasir_prompt_chunks(const kvasir_prompt* prompt) {
  return prompt == nullptr ? 0 : prompt->names.chunk_count();
}

size_t kvasir_prompt_tokens(const kvasir_prompt* prompt) {
  return prompt == nullptr ? 0 : prompt->names.token_count();
}

void kvasir_prompt_free(kvasir_prompt* prompt) {
  delete prompt;
}

// -- what is held -----------------------------------------------------------------------

size_t kvasir_prefix_chunks(const kvasir_prefix* prefix) {
  return prefix == nullptr ? 0 : prefix->held.chunks();
}

size_t kvasir_prefix_tokens(const kvasir_prefix* prefix) {
  return prefix == nullptr ? 0 : prefix->held.tokens();
}

kvasir_code kvasir_prefix_chunk(const kvasir_prefix* prefix, size_t index, kvasir_chunk** chunk,
                                kvasir_error* error) {
  if (chunk == nullptr)
    return refuse(error, "there is nowhere to put the chunk");
  *chunk = nullptr;
  return guarded(error, [&] {
    if (index >= kvasir_prefix_chunks(prefix))
      return refuse(error, "chunk " + std::to_string(index) + " of "
                             + std::to_string(kvasir_prefix_chunks(prefix)) + " held ones");
    *chunk = new kvasir_chunk{prefix->held.holds().shared(), index};
    return KVASIR_OK;
  });
}

void kvasir_prefix_free(kvasir_prefix* prefix) {
  delete prefix;
}

const void* kvasir_chunk_data(const kvasir_chunk* chunk) {
  return chunk == nullptr ? nullptr : chunk->set->bytes(chunk->i).data();
}

size_t kvasir_chunk_size(const kvasir_chunk* chunk) {
  return chunk == nullptr ? 0 : chunk->set->bytes(chunk->i).size();
}

void kvasir_chunk_free(kvasir_chunk* chunk) {
  delete chunk;
}

void kvasir_layers_free(kvasir_layers* layers) {
  delete layers;
}

} // extern "C"
