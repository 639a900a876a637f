#define _POSIX_C_SOURCE 200809L

#include <kvasir/kvasir.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A C program with the installed library alone. Ends with 1 and the line of what does not hold. */

#define CHECK(claim)                                                                           \
  do {                                                                                         \
    if (!(claim)) {                                                                            \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #claim);                              \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

enum { tokens_per_chunk = 4, chunk_count = 3, token_count = tokens_per_chunk * chunk_count };

static uint32_t tokens[token_count];
static unsigned char* chunks[chunk_count];
static unsigned char* room[chunk_count];
static kvasir_buffer from[chunk_count];
static kvasir_buffer into[chunk_count];

static kvasir_options small_options(void) {
  kvasir_options options = {.struct_size = sizeof options, .model = "m"};
  options.dtype = KVASIR_UINT8;
  options.layers = 2;
  options.slots = tokens_per_chunk;
  options.hidden = 65536;
  options.block_size = 4;
  options.pool_bytes = 64u << 20;
  options.copy_threads = 1;
  return options;
}

static kvasir_client* open_client(void) {
  kvasir_options options = small_options();
  kvasir_client* client = NULL;
  kvasir_error error;
  if (kvasir_open(&options, &client, &error) != KVASIR_OK) {
    fprintf(stderr, "%s\n", error.text);
    exit(1);
  }
  return client;
}

static void make_buffers(size_t size) {
  for (size_t i = 0; i < chunk_count; ++i) {
    chunks[i] = malloc(size);
    room[i] = malloc(size);
    CHECK(chunks[i] != NULL && room[i] != NULL);
    memset(chunks[i], (int)i + 1, size);
    from[i] = (kvasir_buffer){chunks[i], size};
    into[i] = (kvasir_buffer){room[i], size};
  }
  for (uint32_t i = 0; i < token_count; ++i)
    tokens[i] = i;
}

static kvasir_prompt* prompt_of(kvasir_client* client, const char* salt) {
  kvasir_prompt* prompt = NULL;
  CHECK(kvasir_prompt_make(client, tokens, token_count, salt, &prompt, NULL) == KVASIR_OK);
  CHECK(kvasir_prompt_chunks(prompt) == chunk_count);
  CHECK(kvasir_prompt_tokens(prompt) == token_count);
  return prompt;
}

/* How it ended, and it is gone. */
static kvasir_code code_of(kvasir_call* call, kvasir_error* error) {
  kvasir_code code = kvasir_call_wait(call, error);
  kvasir_call_free(call);
  return code;
}

static size_t found_by(kvasir_client* client, const kvasir_prompt* prompt) {
  kvasir_call* call = kvasir_lookup(client, prompt, 0);
  kvasir_prefix *prefix = NULL, *again = NULL;
  CHECK(kvasir_call_prefix(call, &prefix, NULL) == KVASIR_OK);
  CHECK(kvasir_call_prefix(call, &again, NULL) == KVASIR_INVALID_ARGUMENT); /* Once. */
  kvasir_call_free(call);
  size_t found = kvasir_prefix_chunks(prefix);
  kvasir_prefix_free(prefix);
  return found;
}

static uint64_t leases_of(kvasir_client* client) {
  kvasir_status status = {.struct_size = sizeof status};
  kvasir_call* call = kvasir_get_status(client, 0);
  CHECK(kvasir_call_status(call, &status, NULL) == KVASIR_OK);
  kvasir_call_free(call);
  return status.read_leases + status.write_leases;
}

static void chunks_come_back(kvasir_client* client, const kvasir_prompt* prompt) {
  size_t stored = 0, resident = 0, loaded = 0, corrupt = 1;
  CHECK(found_by(client, prompt) == 0);
  kvasir_call* call = kvasir_store(client, prompt, 0, from, chunk_count, 0);
  CHECK(kvasir_call_stored(call, &stored, &resident, NULL) == KVASIR_OK);
  CHECK(kvasir_call_loaded(call, &loaded, NULL, NULL) == KVASIR_INVALID_ARGUMENT);
  kvasir_call_free(call);
  CHECK(stored == chunk_count && resident == chunk_count);
  CHECK(found_by(client, prompt) == chunk_count);
  call = kvasir_load(client, prompt, 1, into, 2, 0);
  CHECK(kvasir_call_loaded(call, &loaded, &corrupt, NULL) == KVASIR_OK);
  CHECK(kvasir_call_ready(call));
  kvasir_call_free(call);
  CHECK(loaded == 2 && corrupt == 0);
  CHECK(memcmp(room[0], chunks[1], into[0].size) == 0);
  CHECK(memcmp(room[1], chunks[2], into[1].size) == 0);
}

static void held_chunks_outlive_their_client(void) {
  kvasir_client* client = open_client();
  kvasir_prompt* prompt = prompt_of(client, NULL);
  CHECK(code_of(kvasir_store(client, prompt, 0, from, 1, 0), NULL) == KVASIR_OK);
  kvasir_call* call = kvasir_lookup(client, prompt, 0);
  kvasir_prefix* prefix = NULL;
  kvasir_chunk* chunk = NULL;
  CHECK(kvasir_call_prefix(call, &prefix, NULL) == KVASIR_OK);
  kvasir_call_free(call);
  CHECK(kvasir_prefix_tokens(prefix) == tokens_per_chunk);
  CHECK(kvasir_prefix_chunk(prefix, 1, &chunk, NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(kvasir_prefix_chunk(prefix, 0, &chunk, NULL) == KVASIR_OK);
  call = kvasir_load_held(client, prefix, into, 1, 0);
  kvasir_prefix_free(prefix);
  CHECK(code_of(call, NULL) == KVASIR_OK);
  CHECK(leases_of(client) == 1);
  kvasir_client_close(client);
  CHECK(code_of(kvasir_lookup(client, prompt, 0), NULL) == KVASIR_CANCELLED);
  kvasir_client_free(client);
  kvasir_prompt_free(prompt);
  CHECK(kvasir_chunk_size(chunk) == from[0].size);
  CHECK(memcmp(kvasir_chunk_data(chunk), chunks[0], from[0].size) == 0);
  kvasir_chunk_free(chunk);
}

static void layers_come_back(kvasir_client* client) {
  kvasir_prompt* prompt = prompt_of(client, "layers");
  kvasir_layers* layers = NULL;
  kvasir_prefix* prefix = NULL;
  size_t stored = 0, size = kvasir_layer_bytes(client);
  kvasir_buffer part = {chunks[0], size}, back = {room[0], size};
  kvasir_call* call = kvasir_begin_store(client, prompt, 0, 1, 0);
  CHECK(kvasir_call_layers(call, &layers, NULL) == KVASIR_OK);
  kvasir_call_free(call);
  CHECK(code_of(kvasir_layers_put(layers, 0, &part, 1, 0), NULL) == KVASIR_OK);
  CHECK(code_of(kvasir_layers_put(layers, 0, &part, 1, 0), NULL) == KVASIR_INVALID_ARGUMENT);
  part.data = chunks[1];
  CHECK(code_of(kvasir_layers_put(layers, 1, &part, 1, 0), NULL) == KVASIR_OK);
  call = kvasir_layers_commit(layers, 0);
  CHECK(kvasir_call_stored(call, &stored, NULL, NULL) == KVASIR_OK && stored == 1);
  kvasir_call_free(call);
  CHECK(code_of(kvasir_layers_commit(layers, 0), NULL) == KVASIR_NOT_RESERVED);
  kvasir_layers_free(layers);
  call = kvasir_lookup(client, prompt, 0);
  CHECK(kvasir_call_prefix(call, &prefix, NULL) == KVASIR_OK);
  kvasir_call_free(call);
  CHECK(code_of(kvasir_load_layer(client, prefix, 1, &back, 1, 0), NULL) == KVASIR_OK);
  CHECK(memcmp(room[0], chunks[1], size) == 0);
  kvasir_prefix_free(prefix);
  kvasir_prompt_free(prompt);
}

static void wrong_arguments_are_errors(kvasir_client* client, const kvasir_prompt* prompt) {
  kvasir_error error;
  kvasir_buffer wrong = {chunks[0], from[0].size - 1};
  CHECK(code_of(kvasir_store(client, prompt, 0, &wrong, 1, 0), &error)
        == KVASIR_LAYOUT_MISMATCH);
  CHECK(error.code == KVASIR_LAYOUT_MISMATCH);
  CHECK(strcmp(error.text, "chunk 0 has 1048575 bytes, not 1048576") == 0
        || fprintf(stderr, "%s\n", error.text) < 0);
  wrong = (kvasir_buffer){NULL, from[0].size};
  CHECK(code_of(kvasir_store(client, prompt, 0, &wrong, 1, 0), NULL)
        == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_load(client, prompt, 2, into, 2, 0), NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_load(client, prompt, 0, into, SIZE_MAX, 0), NULL)
        == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_load(client, prompt, 0, NULL, 1, 0), NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_lookup(NULL, prompt, 0), NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_lookup(client, NULL, 0), NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_lookup(client, prompt, 3600001), NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(kvasir_layers_put(NULL, 0, from, 1, 0), NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(kvasir_call_wait(NULL, NULL) == KVASIR_INVALID_ARGUMENT);
  CHECK(kvasir_call_prefix(NULL, NULL, NULL) == KVASIR_INVALID_ARGUMENT);
  kvasir_call_free(NULL);
  kvasir_client_free(NULL);
  CHECK(strcmp(kvasir_code_name(KVASIR_TIMED_OUT), "timed_out") == 0);
  CHECK(strcmp(kvasir_code_name(-1), "unknown") == 0);
  CHECK(leases_of(client) == 0);
}

static kvasir_code code_of_open(const kvasir_options* options) {
  kvasir_client* client = NULL;
  kvasir_error error = {0};
  kvasir_code code = kvasir_open(options, &client, &error);
  CHECK(client == NULL && error.code == (int32_t)code && error.text[0] != '\0');
  return code;
}

static void wrong_options_are_errors(void) {
  struct {
    kvasir_options known;
    uint64_t newer;
  } grown = {.known = small_options(), .newer = 0};
  kvasir_options options = small_options();
  CHECK(code_of_open(NULL) == KVASIR_INVALID_ARGUMENT);
  options.struct_size = 0;
  CHECK(code_of_open(&options) == KVASIR_INVALID_ARGUMENT);
  options = small_options();
  options.model = NULL;
  CHECK(code_of_open(&options) == KVASIR_INVALID_ARGUMENT);
  options = small_options();
  options.dtype = 0;
  CHECK(code_of_open(&options) == KVASIR_INVALID_ARGUMENT);
  options = small_options();
  options.pool_bytes = UINT64_C(1) << 60;
  CHECK(code_of_open(&options) == KVASIR_IO_ERROR);
  grown.known.struct_size = sizeof grown;
  kvasir_client* client = NULL;
  CHECK(kvasir_open(&grown.known, &client, NULL) == KVASIR_OK);
  kvasir_client_free(client);
  grown.newer = 1;
  CHECK(code_of_open(&grown.known) == KVASIR_INVALID_ARGUMENT);
}

/* -- calls that wait: the one copying thread is kept in a `done` --------------------------- */

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t main_thread;
  int place; /* Where `done` runs: 1 this thread, 2 one of the client's. */
  int open;
  kvasir_code waited;
  kvasir_call* other;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void stay(void* user) {
  (void)user;
  if (pthread_equal(pthread_self(), gate.main_thread)) {
    gate.place = 1;
    return;
  }
  pthread_mutex_lock(&gate.mutex);
  gate.place = 2;
  pthread_cond_broadcast(&gate.changed);
  while (!gate.open)
    pthread_cond_wait(&gate.changed, &gate.mutex);
  gate.waited = kvasir_call_wait(gate.other, NULL);
  pthread_mutex_unlock(&gate.mutex);
}

static int place_of_done(void) {
  pthread_mutex_lock(&gate.mutex);
  while (gate.place == 0)
    pthread_cond_wait(&gate.changed, &gate.mutex);
  int place = gate.place;
  gate.place = 0;
  pthread_mutex_unlock(&gate.mutex);
  return place;
}

/* A call whose `done` keeps the copying thread. */
static kvasir_call* keep_copying_thread(kvasir_client* client, const kvasir_prompt* prompt) {
  gate.main_thread = pthread_self();
  for (int i = 0; i < 1000; ++i) {
    kvasir_call* call = kvasir_load(client, prompt, 0, into, chunk_count, 0);
    CHECK(kvasir_call_then(call, stay, NULL, NULL) == KVASIR_OK);
    CHECK(kvasir_call_then(call, stay, NULL, NULL) == KVASIR_INVALID_ARGUMENT);
    if (place_of_done() == 2)
      return call;
    CHECK(code_of(call, NULL) == KVASIR_OK);
  }
  CHECK(!"the copying thread runs a done");
  return NULL;
}

static void calls_that_wait_can_be_ended(kvasir_client* client, const kvasir_prompt* prompt) {
  unsigned char* own = malloc(from[0].size);
  kvasir_buffer buffer = {own, from[0].size};
  kvasir_call* keeps = keep_copying_thread(client, prompt);
  kvasir_call* waits = kvasir_load(client, prompt, 0, &buffer, 1, 0);
  CHECK(!kvasir_call_ready(waits));
  kvasir_call_cancel(waits);
  CHECK(code_of(waits, NULL) == KVASIR_CANCELLED);
  CHECK(code_of(kvasir_load(client, prompt, 0, &buffer, 1, 1), NULL) == KVASIR_TIMED_OUT);
  kvasir_call_free(kvasir_load(client, prompt, 0, &buffer, 1, 0)); /* Cancels. */
  free(own);
  pthread_mutex_lock(&gate.mutex);
  gate.other = kvasir_load(client, prompt, 0, into, 1, 0);
  gate.open = 1;
  pthread_cond_broadcast(&gate.changed);
  pthread_mutex_unlock(&gate.mutex);
  CHECK(code_of(keeps, NULL) == KVASIR_OK);
  CHECK(gate.waited == KVASIR_INVALID_ARGUMENT);
  CHECK(code_of(gate.other, NULL) == KVASIR_OK);
  CHECK(leases_of(client) == 0);
}

int main(void) {
  CHECK(kvasir_version()
        == (KVASIR_VERSION_MAJOR << 16 | KVASIR_VERSION_MINOR << 8 | KVASIR_VERSION_PATCH));
  kvasir_client* client = open_client();
  make_buffers(kvasir_chunk_bytes(client));
  kvasir_prompt* prompt = prompt_of(client, NULL);
  chunks_come_back(client, prompt);
  kvasir_prompt* theirs = prompt_of(client, "another tenant");
  CHECK(found_by(client, theirs) == 0);
  kvasir_prompt_free(theirs);
  layers_come_back(client);
  wrong_arguments_are_errors(client, prompt);
  wrong_options_are_errors();
  calls_that_wait_can_be_ended(client, prompt);
  held_chunks_outlive_their_client();
  kvasir_prompt_free(prompt);
  kvasir_client_free(client);
  for (size_t i = 0; i < chunk_count; ++i) {
    free(chunks[i]);
    free(room[i]);
  }
  return 0;
}
