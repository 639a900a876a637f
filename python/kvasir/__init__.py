"""The KV cache of LLM inference engines, in the engine's own process: docs/embedding.md."""

from ._client import Client, Layout, LayerStore, LoadResult, Prefix, Prompt, StoreResult
from ._kvasir import version as _version
from .errors import (
    BusyError,
    CancelledError,
    Code,
    Error,
    InvalidArgumentError,
    IoError,
    LayoutMismatchError,
    NotReservedError,
    OutOfMemoryError,
    TimedOutError,
    TooLargeError,
)

__version__ = _version()

__all__ = [
    "BusyError",
    "CancelledError",
    "Client",
    "Code",
    "Error",
    "InvalidArgumentError",
    "IoError",
    "LayerStore",
    "Layout",
    "LayoutMismatchError",
    "LoadResult",
    "NotReservedError",
    "OutOfMemoryError",
    "Prefix",
    "Prompt",
    "StoreResult",
    "TimedOutError",
    "TooLargeError",
]
