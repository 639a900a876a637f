from __future__ import annotations

import asyncio
import atexit
import dataclasses
import math
import weakref
from typing import Any, Iterable, NamedTuple, Optional, Sequence, TypeVar, Union

from . import _kvasir
from .errors import InvalidArgumentError

Prompt = _kvasir.Prompt
Prefix = _kvasir.Prefix

_LONGEST_TIMEOUT = 3600.0
_T = TypeVar("_T")


class StoreResult(NamedTuple):
    """What became of a store."""

    stored: int  # Chunks that this call published.
    resident: int  # Of the chunks asked for: readable when it ended.


class LoadResult(NamedTuple):
    """What became of a load."""

    chunks: int  # Copied, from the first asked for on, without a gap.
    corrupt: int  # 1: the next one differed from its checksum and was dropped.


@dataclasses.dataclass(frozen=True)
class Layout:
    """A chunk: `[2, layers, slots, hidden]`, or `[layers, slots, hidden]` if `single_plane`.

    `dtype` is torch's name, torch's dtype, or numpy's. One slot holds one token.
    """

    dtype: Any
    layers: int
    slots: int
    hidden: int
    block_size: int = 16
    single_plane: bool = False


def _milliseconds(timeout: float) -> int:
    if not 0 < timeout <= _LONGEST_TIMEOUT:
        raise InvalidArgumentError(f"a timeout of {timeout} s, not more than 0 and at most an hour")
    return math.ceil(timeout * 1000)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _ended(call: _kvasir.Call[_T]) -> _T:
    """The result of a call. If the task is cancelled, the call has ended, too, when it goes on."""
    if not call.ready():
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def done() -> None:
            try:
                loop.call_soon_threadsafe(_wake, waiter)
            except RuntimeError:
                pass  # The loop was closed: nobody waits.

        call.then(done)
        try:
            await waiter
        except asyncio.CancelledError:
            call.cancel()
            call.wait()  # Until a copy under way has stopped: the arrays are the caller's again.
            raise
    return call.result()


class LayerStore:
    """A store whose layers come one by one. Nothing is readable before `commit`."""

    def __init__(self, layers: _kvasir.Layers):
        self._layers = layers

    def put(self, layer: int, arrays: Sequence[Any], *, timeout: float = 5.0) -> None:
        """Copies one layer of all chunks, one array a chunk; in any order, each layer once."""
        self._layers.begin_put(layer, arrays, _milliseconds(timeout)).result()

    async def put_async(self, layer: int, arrays: Sequence[Any], *, timeout: float = 5.0) -> None:
        await _ended(self._layers.begin_put(layer, arrays, _milliseconds(timeout)))

    def commit(self, *, timeout: float = 5.0) -> StoreResult:
        """Publishes all chunks; nothing if a layer is missing."""
        return StoreResult(*self._layers.begin_commit(_milliseconds(timeout)).result())

    async def commit_async(self, *, timeout: float = 5.0) -> StoreResult:
        return StoreResult(*await _ended(self._layers.begin_commit(_milliseconds(timeout))))


class Client:
    """The KV cache in this process. All functions from any thread; while one waits, others run.

    Arrays (torch, numpy, any with `__dlpack__` or a buffer) are contiguous, in the CPU's memory, and
    must not be used otherwise while a call has them. Each function that waits has a twin for
    asyncio of the name `..._async`.
    """

    def __init__(
        self,
        *,
        model: str,
        layout: Layout,
        pool_bytes: int = 1 << 30,
        world_size: int = 1,
        rank: int = 0,
        node: Optional[str] = None,
        shared_memory: bool = False,
        verify_loads: bool = True,
        eviction: str = "s3fifo",
        copy_threads: int = 2,
        max_pending: int = 1024,
        max_inline_copy_bytes: int = 256 << 10,
    ):
        self._client = _kvasir.Client(
            model=model,
            world_size=world_size,
            rank=rank,
            dtype=str(layout.dtype).removeprefix("torch."),
            single_plane=layout.single_plane,
            layers=layout.layers,
            slots=layout.slots,
            hidden=layout.hidden,
            block_size=layout.block_size,
            pool_bytes=pool_bytes,
            shared_memory=shared_memory,
            verify_loads=verify_loads,
            eviction=eviction,
            node=node,
            copy_threads=copy_threads,
            max_pending=max_pending,
            max_inline_copy_bytes=max_inline_copy_bytes,
        )
        self._layout = layout
        _open_clients.add(self)

    @property
    def layout(self) -> Layout:
        return self._layout

    def close(self) -> None:
        """Calls under way end with `CancelledError`. What is held stays readable."""
        self._client.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def prompt(self, tokens: Iterable[int], salt: Optional[str] = None) -> Prompt:
        """Names a prompt's chunks, once for many calls. A tenant's `salt` has up to 128 bytes."""
        return self._client.prompt(tokens, salt)

    def lookup(self, prompt: Prompt, *, timeout: float = 5.0) -> Prefix:
        """Holds the longest prefix that is there, possibly none."""
        return self._client.begin_lookup(prompt, _milliseconds(timeout)).result()

    async def lookup_async(self, prompt: Prompt, *, timeout: float = 5.0) -> Prefix:
        return await _ended(self._client.begin_lookup(prompt, _milliseconds(timeout)))

    def store(
        self, prompt: Prompt, arrays: Sequence[Any], first: int = 0, *, timeout: float = 5.0
    ) -> StoreResult:
        """Stores chunks `first`, `first + 1`, ... of the prompt, as far as there is room."""
        call = self._client.begin_store(prompt, arrays, first, _milliseconds(timeout))
        return StoreResult(*call.result())

    async def store_async(
        self, prompt: Prompt, arrays: Sequence[Any], first: int = 0, *, timeout: float = 5.0
    ) -> StoreResult:
        call = self._client.begin_store(prompt, arrays, first, _milliseconds(timeout))
        return StoreResult(*await _ended(call))

    def _begin_load(
        self, source: Union[Prompt, Prefix], arrays: Sequence[Any], first: int, timeout: float
    ) -> _kvasir.Call[tuple[int, int]]:
        if not isinstance(source, Prefix):
            return self._client.begin_load(source, arrays, first, _milliseconds(timeout))
        if first != 0:
            raise InvalidArgumentError("what is held is loaded from its start")
        return self._client.begin_load_held(source, arrays, _milliseconds(timeout))

    def load(
        self,
        source: Union[Prompt, Prefix],
        arrays: Sequence[Any],
        first: int = 0,
        *,
        timeout: float = 5.0,
    ) -> LoadResult:
        """Copies chunks `first`, `first + 1`, ... into the arrays, as many as are there."""
        return LoadResult(*self._begin_load(source, arrays, first, timeout).result())

    async def load_async(
        self,
        source: Union[Prompt, Prefix],
        arrays: Sequence[Any],
        first: int = 0,
        *,
        timeout: float = 5.0,
    ) -> LoadResult:
        return LoadResult(*await _ended(self._begin_load(source, arrays, first, timeout)))

    def load_layer(
        self, prefix: Prefix, layer: int, arrays: Sequence[Any], *, timeout: float = 5.0
    ) -> None:
        """Copies one layer of all held chunks, one array a chunk; not compared with checksums."""
        self._client.begin_load_layer(prefix, layer, arrays, _milliseconds(timeout)).result()

    async def load_layer_async(
        self, prefix: Prefix, layer: int, arrays: Sequence[Any], *, timeout: float = 5.0
    ) -> None:
        await _ended(self._client.begin_load_layer(prefix, layer, arrays, _milliseconds(timeout)))

    def begin_store(
        self, prompt: Prompt, first: int, count: int, *, timeout: float = 5.0
    ) -> LayerStore:
        """Reserves `count` chunks, to be stored layer by layer."""
        call = self._client.begin_layers(prompt, first, count, _milliseconds(timeout))
        return LayerStore(call.result())

    async def begin_store_async(
        self, prompt: Prompt, first: int, count: int, *, timeout: float = 5.0
    ) -> LayerStore:
        call = self._client.begin_layers(prompt, first, count, _milliseconds(timeout))
        return LayerStore(await _ended(call))

    def status(self, *, timeout: float = 5.0) -> dict[str, int]:
        """Gauges and counters, named as in `kvasir_status` of the C interface."""
        return self._client.begin_status(_milliseconds(timeout)).result()

    async def status_async(self, *, timeout: float = 5.0) -> dict[str, int]:
        return await _ended(self._client.begin_status(_milliseconds(timeout)))


_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """While the interpreter can still run what waits for calls."""
    for client in list(_open_clients):
        client.close()
