"""What the processes of this example hand to each other: two small JSON files and an exit code."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path

DOCUMENT = Path(__file__).with_name("document.md")
QUESTION = "Which three mistakes are typical, and what is the remedy for each?"
CHUNK_TOKENS = 256


class Exit(IntEnum):
    """How answer.py ends; 1 and 2 are what Python itself uses for exceptions and bad arguments."""

    IDENTICAL = 0
    NOTHING_CACHED = 3
    CHUNK_DAMAGED = 4
    TOKENS_DIFFER = 5


@dataclass
class StoredChunk:
    """One chunk as process A sent it: tokens [start, end) under `key`."""

    index: int
    start: int
    end: int
    key: str
    size_bytes: int
    sha256: str


@dataclass
class Manifest:
    """What process A stored and how long it took."""

    question: str
    threads: int
    prompt_tokens: int
    prompt_sha256: str
    chunks: list[StoredChunk]
    prefill_seconds: float
    store_seconds: float

    @property
    def size_bytes(self) -> int:
        return sum(chunk.size_bytes for chunk in self.chunks)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> "Manifest":
        fields = json.loads(path.read_text())
        fields["chunks"] = [StoredChunk(**chunk) for chunk in fields["chunks"]]
        return Manifest(**fields)


@dataclass
class Answer:
    """What process B received and what it made of it; a list has one entry for each measurement.

    The fields after `fetch_seconds` are filled only if chunks were received and none was damaged.
    """

    chunks_asked: int
    chunks_hit: int
    bytes_received: int
    damaged: list[int]
    fetch_seconds: list[float]
    tail_tokens: int = 0
    tail_seconds: list[float] = field(default_factory=list)
    uncached_seconds: list[float] = field(default_factory=list)
    kv_recomputed_equal: bool = False
    logits_equal: bool = False
    tokens_compared: int = 0
    first_difference: int | None = None
    text: str = ""

    @property
    def cached_seconds(self) -> list[float]:
        return [
            fetch + tail for fetch, tail in zip(self.fetch_seconds, self.tail_seconds, strict=True)
        ]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> "Answer":
        return Answer(**json.loads(path.read_text()))


@dataclass
class MpManifest:
    """What process A stored through an MP server: the same chunks for every world size."""

    threads: int
    prompt_sha256: str
    chunk_tokens: int
    chunk_sha256: list[str]  # of [2, layers, tokens, kv_heads * head_dim], all ranks together

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> "MpManifest":
        return MpManifest(**json.loads(path.read_text()))


def sha256_of_tokens(tokens: list[int]) -> str:
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()
