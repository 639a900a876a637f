"""An engine without a model: LMCache's own scheduler and worker adapters over a paged KV cache of random numbers.

Importing this module silences LMCache; import it first.
"""

import os
import threading
import time
import uuid
from pathlib import Path

os.environ |= {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "LMCACHE_LOG_LEVEL": "CRITICAL"}

import torch
import zmq
from lmcache.integration.vllm.vllm_multi_process_adapter import (
    LMCacheMPSchedulerAdapter,
    LMCacheMPWorkerAdapter,
    LoadStoreOp,
    ParallelStrategy,
)
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey, RegisterEngineDrivenContextPayload
from lmcache.v1.multiprocess.transfer_context import EngineDrivenContextPickle, EngineDrivenContextShm

TIMEOUT_S = 10.0
BLOCK_TOKENS = 16
LAYERS, HEADS, HEAD_SIZE = 2, 2, 8
TRANSPORTS = {EngineDrivenContextShm: "shm", EngineDrivenContextPickle: "pickle"}
CONFIG = {
    "lmcache.mp.mq_timeout": TIMEOUT_S,
    "lmcache.mp.heartbeat_interval": 5.0,
    "lmcache.mp.mp_transfer_mode": "engine_driven",
}
# Never collected: a context that goes while a socket is open waits for it for ever.
contexts = []


def own_context():
    """A context that no other client has. pyzmq names a socket's monitor after its descriptor, so in a shared
    context a new client fails with "Address already in use" while the monitor of a closed one is still going."""
    contexts.append(zmq.Context())
    return contexts[-1]


class Rank:
    """One worker adapter and its share of the KV cache: per layer [2, blocks, 16, HEADS, HEAD_SIZE]."""

    def __init__(self, url, model, world_size, worker_id, dtype, blocks):
        strategy = parallel_strategy(world_size, worker_id)
        self.dtype = dtype
        self.adapter = LMCacheMPWorkerAdapter(
            url, own_context(), model, BLOCK_TOKENS, strategy, extra_config=CONFIG
        )
        random = torch.Generator().manual_seed(7 + worker_id)
        self.kv = {
            f"layer.{layer}": torch.randn(
                2, blocks, BLOCK_TOKENS, HEADS, HEAD_SIZE, generator=random
            ).to(dtype)
            for layer in range(LAYERS)
        }

    @property
    def instance_id(self):
        return self.adapter.instance_id

    def register(self):
        self.adapter.register_kv_caches(self.kv, layout_hints={"kv_layout": "NHD"})
        self.context = self.adapter.transfer_ctx._engine_driven_context
        return TRANSPORTS.get(type(self.context), "none")

    def store(self, request_id, tokens, start, end, blocks, salt=""):
        operation = LoadStoreOp(token_ids=list(tokens), start=start, end=end, block_ids=[blocks])
        event = self.adapter.create_recorded_event()
        self.adapter.submit_store_request(request_id, operation, event, cache_salt=salt)
        return self.adapter.store_futures.pop(request_id).result(TIMEOUT_S)

    def retrieve(self, request_id, tokens, start, end, blocks, salt="", skip=0):
        if self.dtype.itemsize == 1:
            return self._retrieve_by_hand(request_id, tokens, start, end, blocks, salt, skip)
        operation = LoadStoreOp(
            token_ids=list(tokens), start=start, end=end, block_ids=[blocks], skip_first_n_tokens=skip
        )
        event = self.adapter.create_recorded_event()
        self.adapter.submit_retrieve_request(request_id, operation, event, cache_salt=salt)
        future, _ = self.adapter.retrieve_futures.pop(request_id)
        return future.result(TIMEOUT_S)

    def _retrieve_by_hand(self, request_id, tokens, start, end, blocks, salt, skip):
        """torch cannot scatter float8 on the CPU, so that here only the transfer is LMCache's."""
        key = make_key(
            self.adapter.model_name, tokens, start, end, request_id, self.adapter.worker_id,
            self.adapter.world_size, salt=salt,
        )
        chunks = self.context.prepare_retrieve(key, self.instance_id)
        if chunks:
            rows = torch.cat([chunk.view(torch.uint8) for chunk in chunks], dim=2)
            first = skip // BLOCK_TOKENS
            for layer, kv in enumerate(self.kv.values()):
                pages = rows[:, layer].reshape(2, len(blocks), BLOCK_TOKENS, HEADS, HEAD_SIZE)
                kv.view(torch.uint8)[:, blocks[first:]] = pages[:, first:]
        self.context.commit_retrieve(key, self.instance_id)
        return bool(chunks)

    def block_bytes(self, blocks):
        """The bytes of those blocks: float8 has no comparison of its own."""
        return {name: kv[:, blocks].contiguous().view(torch.uint8) for name, kv in self.kv.items()}

    def blocks_equal(self, blocks, expected):
        return all(torch.equal(got, expected[name]) for name, got in self.block_bytes(blocks).items())


class Engine:
    """A scheduler and one worker for each KV rank."""

    def __init__(self, url, model, dtype=torch.float16, world_size=1, chunks=16):
        self.scheduler = LMCacheMPSchedulerAdapter(
            [url], own_context(), model, BLOCK_TOKENS, parallel_strategy(world_size, 0),
            extra_config=CONFIG,
        )
        self.model = model
        self.world_size = world_size
        self.chunk = self.scheduler.lmcache_tokens_per_chunk
        self.blocks_per_chunk = self.chunk // BLOCK_TOKENS
        blocks = chunks * self.blocks_per_chunk
        self.ranks = [Rank(url, model, world_size, rank, dtype, blocks) for rank in range(world_size)]

    def blocks(self, first_chunk, chunks):
        """The blocks of `chunks` chunks, if the KV cache is thought of as a row of chunks."""
        return list(range(first_chunk * self.blocks_per_chunk, (first_chunk + chunks) * self.blocks_per_chunk))

    def lookup(self, request_id, tokens, salt="", reserve_last_token=False):
        """Tokens found, locked for the retrieve of every rank."""
        self.scheduler.maybe_submit_lookup_request(
            request_id, list(tokens), cache_salt=salt, reserve_last_token=reserve_last_token
        )
        return wait_for(lambda: self.scheduler.check_lookup_result(request_id))

    def finish(self, request_id):
        self.scheduler.end_session(request_id)
        self.scheduler.cleanup_lookup_result(request_id)

    def shut_down(self):
        for rank in self.ranks:
            rank.adapter.shutdown()
        self.scheduler.shutdown()


def parallel_strategy(world_size, worker_id):
    return ParallelStrategy(
        mla_only=False, vllm_world_size=world_size, vllm_worker_id=worker_id, tp_size=world_size,
        pp_size=1, n_servers=1,
    )


def wait_for(poll):
    """Asks again and again, as an engine does in every step, until the answer is not None."""
    deadline = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    while time.monotonic() < deadline:
        if (answer := poll()) is not None:
            return answer
        pause.wait(0.002)
    raise TimeoutError(f"no result within {TIMEOUT_S} s")


def make_key(model, tokens, start, end, request_id, worker_id=None, world_size=1, readers=1, salt=""):
    """The first argument of most operations; without a worker id it is a scheduler's."""
    return IPCCacheServerKey(
        model_name=model, world_size=world_size, worker_id=worker_id, token_ids=tuple(tokens), start=start,
        end=end, request_id=request_id, cache_salt=salt, num_kv_readers=readers,
    )


def registration(model, chunk, instance_id=None, world_size=1, dtype="float16", **changed):
    """What a worker of this engine's shape registers with, by default with a fresh instance id."""
    fields = {
        "instance_id": uuid.uuid4().int >> 65 if instance_id is None else instance_id,
        "model_name": model, "world_size": world_size, "block_size": BLOCK_TOKENS, "num_layers": LAYERS,
        "hidden_dim_size": HEADS * HEAD_SIZE, "dtype_str": dtype, "use_mla": False, "num_physical_slots": chunk,
    }
    return RegisterEngineDrivenContextPayload(**fields | changed)


def segment_path(name):
    return Path("/dev/shm") / name.lstrip("/")
