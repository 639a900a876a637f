"""An MP server seen through LMCache's own, unmodified scheduler and worker adapters."""

import os
import threading
import time
import uuid
from collections.abc import Callable

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")

import torch
import zmq
from lmcache.integration.vllm.vllm_multi_process_adapter import (
    LMCacheMPSchedulerAdapter,
    LMCacheMPWorkerAdapter,
    LoadStoreOp,
    ParallelStrategy,
)

from model import DTYPE, MODEL_NAME, Model

BLOCK_TOKENS = 16
TIMEOUT_SECONDS = 60.0


class PagedEngine:
    """The part of an engine that LMCache talks to: a scheduler and one worker for each KV rank.

    The KV cache is paged: a tensor [2, blocks, 16, kv_heads, head_dim] for each layer, of which a
    prompt has the blocks 0, 1, 2, ... A second rank takes the second half of the layers, as with
    pipeline parallelism: the model's three KV heads cannot be halved.
    """

    def __init__(self, url: str, model: Model, world_size: int, tokens: int) -> None:
        context = zmq.Context.instance()
        # Keys do not tell number formats apart, the model's name has to.
        name = f"{MODEL_NAME}/{str(DTYPE).removeprefix('torch.')}"
        config = {
            "lmcache.mp.mq_timeout": TIMEOUT_SECONDS,
            "lmcache.mp.mp_transfer_mode": "engine_driven",
        }

        def arguments(rank: int) -> tuple:
            strategy = ParallelStrategy(
                mla_only=False,
                vllm_world_size=world_size,
                vllm_worker_id=rank,
                tp_size=1,
                pp_size=world_size,
                n_servers=1,
            )
            return context, name, BLOCK_TOKENS, strategy

        self.scheduler = LMCacheMPSchedulerAdapter([url], *arguments(0), extra_config=config)
        self.chunk_tokens: int = self.scheduler.lmcache_tokens_per_chunk
        self.workers = [
            LMCacheMPWorkerAdapter(url, *arguments(rank), extra_config=config)
            for rank in range(world_size)
        ]
        blocks = -(-tokens // BLOCK_TOKENS)
        self.layers = [
            torch.zeros(2, blocks, BLOCK_TOKENS, model.kv_heads, model.head_dim, dtype=DTYPE)
            for _ in range(model.layers)
        ]
        per_rank = model.layers // world_size
        for rank, worker in enumerate(self.workers):
            share = range(rank * per_rank, (rank + 1) * per_rank)
            worker.register_kv_caches(
                {f"model.layers.{layer}": self.layers[layer] for layer in share},
                layout_hints={"kv_layout": "NHD"},
            )

    def transfer(self) -> str:
        """How chunks travel between this process and the server."""
        kinds = {type(worker.transfer_ctx._engine_driven_context) for worker in self.workers}
        return ", ".join(kind.__name__.removeprefix("EngineDrivenContext") for kind in kinds)

    def full_chunks(self, prompt: list[int]) -> int:
        """The chunks before the last token, which must be computed for the first logits."""
        return (len(prompt) - 1) // self.chunk_tokens

    def store(self, prompt: list[int], kv: torch.Tensor) -> None:
        """Stores the chunks that `kv` [2, layers, tokens, kv_heads * head_dim] fills."""
        tokens = kv.shape[2]
        for layer, pages in enumerate(self.layers):
            self._rows(pages)[:, :tokens] = kv[:, layer]
        request_id = f"store-{uuid.uuid4().hex}"
        for worker in self.workers:
            operation = self._operation(prompt, tokens)
            worker.submit_store_request(request_id, operation, worker.create_recorded_event())
        for worker in self.workers:
            self._wait(lambda: request_id in (worker.get_finished({request_id})[0] or ()))
            if worker.get_failed_store_requests():
                raise SystemExit("the server did not take a chunk")
        self.scheduler.end_session(request_id)

    def fetch(self, prompt: list[int]) -> torch.Tensor:
        """The leading chunks that the server has of every rank, in the shape of `store`."""
        for pages in self.layers:
            pages.zero_()
        request_id = f"fetch-{uuid.uuid4().hex}"
        self.scheduler.maybe_submit_lookup_request(request_id, prompt, reserve_last_token=True)
        found: list[int] = []

        def answered() -> bool:
            tokens = self.scheduler.check_lookup_result(request_id)
            found.extend([] if tokens is None else [tokens])
            return tokens is not None

        self._wait(answered)
        if found[0] > 0:
            self._retrieve(request_id, prompt, found[0])
        self.scheduler.end_session(request_id)
        self.scheduler.cleanup_lookup_result(request_id)
        return torch.stack([self._rows(pages)[:, : found[0]] for pages in self.layers], dim=1)

    def _retrieve(self, request_id: str, prompt: list[int], tokens: int) -> None:
        for worker in self.workers:
            operation = self._operation(prompt, tokens)
            worker.submit_retrieve_request(request_id, operation, worker.create_recorded_event())
        for worker in self.workers:
            self._wait(lambda: request_id in (worker.get_finished(set())[1] or ()))
            if worker.get_block_ids_with_load_errors():
                raise SystemExit("a chunk that was found could not be retrieved")

    def clear(self) -> None:
        self.scheduler.reset_cache()

    def close(self) -> None:
        for worker in self.workers:
            worker.shutdown()
        self.scheduler.shutdown()

    @staticmethod
    def _rows(pages: torch.Tensor) -> torch.Tensor:
        """A layer as [2, tokens, kv_heads * head_dim]."""
        return pages.view(2, -1, pages.shape[-2] * pages.shape[-1])

    @staticmethod
    def _operation(prompt: list[int], tokens: int) -> LoadStoreOp:
        blocks = list(range(tokens // BLOCK_TOKENS))
        return LoadStoreOp(token_ids=prompt, start=0, end=tokens, block_ids=[blocks])

    @staticmethod
    def _wait(finished: Callable[[], bool]) -> None:
        """Asks again and again, as an engine does in each of its steps."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        pause = threading.Event()
        while not finished():
            if time.monotonic() > deadline:
                raise SystemExit(f"no answer within {TIMEOUT_SECONDS:.0f} s")
            pause.wait(0.001)
