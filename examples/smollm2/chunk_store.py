"""An lm:// server seen through LMCache's own, unmodified client classes."""

import asyncio
import hashlib
import os
import threading
from dataclasses import dataclass

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

from handover import CHUNK_TOKENS
from model import DTYPE, MODEL_NAME, Model

PUT_TIMEOUT_SECONDS = 60


@dataclass
class Chunk:
    """Tokens [start, end) of a prompt; `key` stands for everything up to `end`."""

    index: int
    start: int
    end: int
    key: CacheEngineKey


@dataclass
class ReceivedChunk:
    """A chunk that the server had; kv is [2, layers, tokens, kv_heads * head_dim]."""

    chunk: Chunk
    kv: torch.Tensor


def sha256_of_kv(kv: torch.Tensor) -> str:
    """Over the bytes of `kv` as they travel."""
    return hashlib.sha256(kv.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()


class ChunkStore:
    def __init__(self, host: str, port: int, model: Model) -> None:
        # local_cpu is LMCache's cache inside the process: off, so that every byte is the server's.
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK_TOKENS,
            local_cpu=False,
            max_local_cpu_size=0.5,
            save_unfull_chunk=False,
            remote_url=f"lm://{host}:{port}",
            remote_serde="naive",
        )
        self.metadata = LMCacheMetadata(
            model_name=MODEL_NAME,
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=DTYPE,
            kv_shape=(model.layers, 2, CHUNK_TOKENS, model.kv_heads, model.head_dim),
        )
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        self.memory = LocalCPUBackend(config, self.metadata, dst_device="cpu")
        self.remote = RemoteBackend(config, self.metadata, loop, self.memory, dst_device="cpu")
        if self.remote.connection is None:
            raise SystemExit(f"no lm:// server answers at {host}:{port}")
        self.database = ChunkedTokenDatabase(config, self.metadata)

    def chunks_of(self, tokens: list[int]) -> list[Chunk]:
        """The full chunks before the last token, which must be computed for the first logits."""
        found = self.database.process_tokens(tokens[:-1])
        return [Chunk(index, *rest) for index, rest in enumerate(found)]

    def put(self, chunks: list[Chunk], kv: torch.Tensor) -> None:
        """Stores the rows of `chunks` from `kv` [2, layers, tokens, kv_heads * head_dim].

        Returns when the server has them.
        """
        for chunk in chunks:
            shape = self.metadata.get_shapes(chunk.end - chunk.start)[0]
            buffer = self.memory.allocate(shape, DTYPE, MemoryFormat.KV_2LTD)
            buffer.tensor.copy_(kv[:, :, chunk.start : chunk.end])
            self.remote.submit_put_task(chunk.key, buffer).result(PUT_TIMEOUT_SECONDS)
            buffer.ref_count_down()
        # A PUT is never answered, but requests are served in order: the answer to one behind the
        # last PUT tells that all of them have arrived.
        if not self.remote.contains(chunks[-1].key):
            raise SystemExit(
                f"the server does not have the chunk just stored: {chunks[-1].key.to_string()}"
            )

    def get(self, chunks: list[Chunk]) -> list[ReceivedChunk]:
        """The leading chunks that the server has. What follows a missing chunk is of no use."""
        hits = chunks[: self.remote.batched_contains([chunk.key for chunk in chunks])]
        buffers = self.remote.batched_get_blocking([chunk.key for chunk in hits])
        received = []
        for chunk, buffer in zip(hits, buffers, strict=True):
            if buffer is None:
                break
            received.append(ReceivedChunk(chunk, buffer.tensor.clone()))
            buffer.ref_count_down()
        return received
