/* kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0 */

#ifndef KVASIR_H
#define KVASIR_H

#include <stddef.h>
#include <stdint.h>

/* The KV cache inside a process, for C and whatever calls C. Buffers in, buffers out, hits without
 * a copy. What is meant by chunks, prompts, holds and layouts: docs/embedding.md.
 *
 * Errors. Functions that can fail return a `kvasir_code` and fill the `kvasir_error` they are given
 * (which may be NULL) if they fail; nothing is kept per thread. A NULL where none is allowed is
 * `KVASIR_INVALID_ARGUMENT`. `..._free(NULL)` does nothing.
 *
 * Calls. A function that returns a `kvasir_call` has begun its work; the call ends exactly once:
 * done, failed, past its deadline, cancelled, or because the client was closed. Functions that ask
 * never fail otherwise: what is wrong with their arguments is the call's error. They return NULL
 * only if there is no memory for the call, and everything that takes a call says so of a NULL.
 *
 * Buffers belong to the caller and must stay until the call has ended: until `kvasir_call_wait` or
 * a result was given, `done` was called, or `kvasir_call_free` returned.
 *
 * Threads. Everything may be used from several threads at once, but for: `free` of a handle,
 * which nobody may use any more; and `kvasir_prompt_extend`, alone on its prompt. All handles may
 * outlive their client. A process that forks: the child must not use any.
 *
 * Compatibility. Structs with a `struct_size` grow at their end; the caller sets it to `sizeof`.
 * What a library does not know must be zero. Zero always means the default. */

#define KVASIR_VERSION_MAJOR 0
#define KVASIR_VERSION_MINOR 1
#define KVASIR_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* Of the library, not of this header: major << 16 | minor << 8 | patch. */
uint32_t kvasir_version(void);

/* -- errors ------------------------------------------------------------------------------ */

/* Never renumbered. */
typedef enum kvasir_code {
  KVASIR_OK = 0,
  KVASIR_NOT_FOUND = 10,
  KVASIR_ALREADY_EXISTS = 11,
  KVASIR_INVALID_ARGUMENT = 30, /* A value lies outside of its range; the text says which. */
  KVASIR_MALFORMED_FRAME = 31,
  KVASIR_LAYOUT_MISMATCH = 32, /* A buffer is not as large as a chunk, or layer of one. */
  KVASIR_NOT_RESERVED = 33,    /* The store was committed, or its reservation ended. */
  KVASIR_TOO_LARGE = 34,
  KVASIR_OUT_OF_MEMORY = 60,
  KVASIR_BUSY = 61,      /* Too many calls wait. */
  KVASIR_TIMED_OUT = 62, /* The deadline passed. */
  KVASIR_CANCELLED = 63, /* By `kvasir_call_cancel`, or the client was closed. */
  KVASIR_IO_ERROR = 90,
  KVASIR_PEER_UNREACHABLE = 91,
  KVASIR_DEVICE_ERROR = 92,
  KVASIR_CHECKSUM_MISMATCH = 120,
  KVASIR_INTERNAL = 255 /* None of these; the text says more. */
} kvasir_code;

typedef struct kvasir_error {
  int32_t code;   /* A `kvasir_code`. */
  char text[252]; /* A sentence in UTF-8, cut if need be, ends with 0. */
} kvasir_error;

/* The code's name as above in small letters, "invalid_argument"; "unknown" for others. Static. */
const char* kvasir_code_name(int32_t code);

/* -- the client -------------------------------------------------------------------------- */

typedef struct kvasir_client kvasir_client;
typedef struct kvasir_prompt kvasir_prompt;
typedef struct kvasir_prefix kvasir_prefix;
typedef struct kvasir_chunk kvasir_chunk;
typedef struct kvasir_layers kvasir_layers;
typedef struct kvasir_call kvasir_call;

typedef enum kvasir_dtype {
  KVASIR_FLOAT16 = 1,
  KVASIR_BFLOAT16 = 2,
  KVASIR_FLOAT32 = 3,
  KVASIR_FLOAT64 = 4,
  KVASIR_FLOAT8_E4M3FN = 5,
  KVASIR_FLOAT8_E5M2 = 6,
  KVASIR_FLOAT8_E4M3FNUZ = 7,
  KVASIR_FLOAT8_E5M2FNUZ = 8,
  KVASIR_UINT8 = 9,
  KVASIR_INT8 = 10,
  KVASIR_INT16 = 11,
  KVASIR_INT32 = 12,
  KVASIR_INT64 = 13,
  KVASIR_BOOL = 14,
  KVASIR_UINT16 = 15,
  KVASIR_UINT32 = 16,
  KVASIR_UINT64 = 17
} kvasir_dtype;

typedef enum kvasir_sharing {
  KVASIR_PRIVATE = 0, /* Private memory. */
  KVASIR_SHARED = 1   /* A segment in /dev/shm. */
} kvasir_sharing;

/* `kvasir_options o = {.struct_size = sizeof o, .model = "..."}` and what else is not default. */
typedef struct kvasir_options {
  size_t struct_size;
  const char* model;   /* 1 to 1024 bytes; part of every chunk's name. */
  uint32_t world_size; /* Ranks that together hold a chunk, to 255. Default: 1. */
  uint32_t rank;       /* The one that this client serves. */

  /* A chunk, row-major: [2, layers, slots, hidden], or [layers, slots, hidden]. */
  uint32_t dtype;        /* A `kvasir_dtype`; no default. */
  uint32_t single_plane; /* Not 0: MLA, or K and V fused. */
  uint32_t layers;       /* No default, nor have the next three. */
  uint32_t slots;        /* Tokens of a chunk. */
  uint32_t hidden;       /* Elements of a token in one layer of one plane. */
  uint32_t block_size;   /* Tokens of the engine's blocks. */

  uint64_t pool_bytes;       /* Default: 1 GiB. */
  uint32_t sharing;          /* A `kvasir_sharing`. */
  uint32_t unverified_loads; /* Not 0: what is copied out is not compared with its checksum. */
  const char* eviction;      /* "s3fifo" (default) or "lru". */
  const char* node;          /* Path of the node's socket to join. Default: in-process. */
  uint32_t copy_threads;     /* 1 to 64. Default: 2. */
  uint32_t max_pending;      /* Calls that wait; more are refused. Default: 1024. */
  uint64_t max_inline_copy_bytes; /* Copied by the thread that asks. Default: 256 KiB. */
} kvasir_options;

/* Errors: INVALID_ARGUMENT, TOO_LARGE, IO_ERROR or OUT_OF_MEMORY if the pool cannot be had. Takes
 * milliseconds. `*client` is NULL after an error. */
kvasir_code kvasir_open(const kvasir_options* options, kvasir_client** client,
                        kvasir_error* error);

/* Ends all calls under way with CANCELLED; later ones fail at once. When it returns, no thread of
 * the client's is left, but in a `done`: then all ends soon. Once or often. */
void kvasir_client_close(kvasir_client* client);

/* Closes. */
void kvasir_client_free(kvasir_client* client);

/* Bytes of a chunk, and of one layer of it (both planes). 0 for NULL. */
uint64_t kvasir_chunk_bytes(const kvasir_client* client);
uint64_t kvasir_layer_bytes(const kvasir_client* client);

/* -- prompts ----------------------------------------------------------------------------- */

/* Names the chunks of a prompt, once for many calls. `salt` (tenant): up to 128 bytes, or NULL. */
kvasir_code kvasir_prompt_make(const kvasir_client* client, const uint32_t* tokens,
                               size_t token_count, const char* salt, kvasir_prompt** prompt,
                               kvasir_error* error);

/* The prompt is `tokens` from now on, from its start; only what is new is hashed. Calls under way
 * have what they need already. */
kvasir_code kvasir_prompt_extend(kvasir_prompt* prompt, const uint32_t* tokens,
                                 size_t token_count, kvasir_error* error);

/* Full chunks; tokens behind them cannot be stored. 0 for NULL. */
size_t kvasir_prompt_chunks(const kvasir_prompt* prompt);
size_t kvasir_prompt_tokens(const kvasir_prompt* prompt);
void kvasir_prompt_free(kvasir_prompt* prompt);

/* -- asking ------------------------------------------------------------------------------ */

/* All: `deadline_ms` is at most an hour, 0 is 5000. */

typedef struct kvasir_buffer {
  void* data; /* Only read by functions that store. */
  size_t size;
} kvasir_buffer;

/* Holds the longest prefix of the prompt that is there, possibly none. -> kvasir_call_prefix */
kvasir_call* kvasir_lookup(kvasir_client* client, const kvasir_prompt* prompt,
                           uint32_t deadline_ms);

/* Stores chunks `first`, `first + 1`, ... of the prompt: those that are neither resident nor being
 * stored, as far as there is room. -> kvasir_call_stored */
kvasir_call* kvasir_store(kvasir_client* client, const kvasir_prompt* prompt, size_t first,
                          const kvasir_buffer* chunks, size_t chunk_count,
                          uint32_t deadline_ms);

/* Copies chunks `first`, `first + 1`, ... into the buffers, as many as are there without a gap.
 * What lies in the other buffers is unspecified. -> kvasir_call_loaded */
kvasir_call* kvasir_load(kvasir_client* client, const kvasir_prompt* prompt, size_t first,
                         const kvasir_buffer* chunks, size_t chunk_count, uint32_t deadline_ms);

/* The same from the start of what is held, which may be freed meanwhile. */
kvasir_call* kvasir_load_held(kvasir_client* client, const kvasir_prefix* prefix,
                              const kvasir_buffer* chunks, size_t chunk_count,
                              uint32_t deadline_ms);

/* One layer of all held chunks, one buffer a chunk. Not compared with a checksum.
 * -> kvasir_call_wait */
kvasir_call* kvasir_load_layer(kvasir_client* client, const kvasir_prefix* prefix, size_t layer,
                               const kvasir_buffer* chunks, size_t chunk_count,
                               uint32_t deadline_ms);

/* Reserves chunks `first` to `first + chunk_count - 1`, to be stored layer by layer.
 * -> kvasir_call_layers */
kvasir_call* kvasir_begin_store(kvasir_client* client, const kvasir_prompt* prompt,
                                size_t first, size_t chunk_count, uint32_t deadline_ms);

/* The storage manager's counters. -> kvasir_call_status */
kvasir_call* kvasir_get_status(kvasir_client* client, uint32_t deadline_ms);

/* -- calls ------------------------------------------------------------------------------- */

/* Whether it has ended. Not 0 for NULL. */
int kvasir_call_ready(const kvasir_call* call);

/* Waits until it has ended. @returns how. INVALID_ARGUMENT in a `done`, unless it has ended. */
kvasir_code kvasir_call_wait(kvasir_call* call, kvasir_error* error);

/* Calls `done(user)` once when the call has ended: on this thread if it has already, otherwise on a
 * thread of the client's. It must not block, and may free the call. At most once per call.
 * @returns an error if `done` will not be called. */
kvasir_code kvasir_call_then(kvasir_call* call, void (*done)(void* user), void* user,
                             kvasir_error* error);

/* Asks it to end with CANCELLED, which it does soon unless it is done first. */
void kvasir_call_cancel(kvasir_call* call);

/* A call under way is cancelled, and waited for: milliseconds. In a `done` it is not waited for;
 * its buffers must stay then, and nobody learns for how long. */
void kvasir_call_free(kvasir_call* call);

/* The results. Each waits as `kvasir_call_wait` does, and returns the call's error if it failed;
 * INVALID_ARGUMENT for a call of another kind. */

/* Once: the prefix is the caller's then. */
kvasir_code kvasir_call_prefix(kvasir_call* call, kvasir_prefix** prefix, kvasir_error* error);

/* Once: the store is the caller's then. */
kvasir_code kvasir_call_layers(kvasir_call* call, kvasir_layers** layers, kvasir_error* error);

/* `stored`: chunks that this call published. `resident`: of those asked for, readable when it
 * ended. Each may be NULL. */
kvasir_code kvasir_call_stored(kvasir_call* call, size_t* stored, size_t* resident,
                               kvasir_error* error);

/* `loaded`: chunks that were copied. `corrupt`: 1 if the next one differed from its checksum and
 * was dropped. Each may be NULL. */
kvasir_code kvasir_call_loaded(kvasir_call* call, size_t* loaded, size_t* corrupt,
                               kvasir_error* error);

typedef struct kvasir_status {
  size_t struct_size;
  uint64_t capacity_bytes;
  uint64_t usable_bytes; /* Already faulted in; grows to the capacity after `kvasir_open`. */
  uint64_t used_bytes;
  uint64_t staged_bytes; /* Reserved by stores. */
  uint64_t held_bytes;   /* By prefixes, chunks and loads. */
  uint64_t objects;
  uint64_t write_leases;
  uint64_t read_leases;
  uint64_t evicted_objects; /* From here on counted since the client was opened. */
  uint64_t corrupt_objects;
  uint64_t chunks_stored;
  uint64_t chunks_no_room;
  uint64_t lookups;
  uint64_t chunks_asked; /* By lookups and loads. */
  uint64_t chunks_held;
  uint64_t prefixes_cut; /* Found more than may be held. */
} kvasir_status;

/* Fills as much as `status->struct_size` says. */
kvasir_code kvasir_call_status(kvasir_call* call, kvasir_status* status, kvasir_error* error);

/* -- what is held ------------------------------------------------------------------------ */

/* 0 for NULL. */
size_t kvasir_prefix_chunks(const kvasir_prefix* prefix);
size_t kvasir_prefix_tokens(const kvasir_prefix* prefix);

/* A hold of its own on one chunk, which outlives the prefix. */
kvasir_code kvasir_prefix_chunk(const kvasir_prefix* prefix, size_t index, kvasir_chunk** chunk,
                                kvasir_error* error);

/* Ends the hold. */
void kvasir_prefix_free(kvasir_prefix* prefix);

/* The cache's own bytes, which must not be written: all readers see them. Valid until
 * `kvasir_chunk_free`. NULL for NULL. */
const void* kvasir_chunk_data(const kvasir_chunk* chunk);
size_t kvasir_chunk_size(const kvasir_chunk* chunk);
void kvasir_chunk_free(kvasir_chunk* chunk);

/* -- storing layer by layer -------------------------------------------------------------- */

/* Copies one layer of all chunks, one buffer a chunk; in any order, each layer once.
 * -> kvasir_call_wait */
kvasir_call* kvasir_layers_put(kvasir_layers* layers, size_t layer, const kvasir_buffer* chunks,
                               size_t chunk_count, uint32_t deadline_ms);

/* Waits for the puts under way, then publishes all chunks; nothing if a layer is missing or a put
 * failed. Later puts and commits are NOT_RESERVED. -> kvasir_call_stored */
kvasir_call* kvasir_layers_commit(kvasir_layers* layers, uint32_t deadline_ms);

/* Gives back what was not committed, after the puts under way. */
void kvasir_layers_free(kvasir_layers* layers);

#ifdef __cplusplus
}
#endif

#endif /* KVASIR_H */
