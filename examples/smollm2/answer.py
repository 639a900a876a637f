#!/usr/bin/env python3
"""Process B: answers the same prompt with the KV cache of process A, and once more without it.

Exit status: 0 both answers are identical; 3 nothing came from the cache; 4 a chunk is not what was
stored; 5 the tokens differ.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import DynamicCache

from chunk_store import ChunkStore, ReceivedChunk, sha256_of_kv
from handover import DOCUMENT, Answer, Exit, Manifest, sha256_of_tokens
from model import Model


def find_damage(received: list[ReceivedChunk], manifest: Manifest) -> list[int]:
    """The received chunks whose bytes are not those that process A sent."""
    damaged = []
    for got, stored in zip(received, manifest.chunks):
        if got.chunk.key.to_string() != stored.key:
            raise SystemExit(
                f"chunk {stored.index} has key {got.chunk.key.to_string()}, stored was {stored.key}"
            )
        sha256 = sha256_of_kv(got.kv)
        if sha256 != stored.sha256:
            print(f"  chunk {stored.index} is damaged: {stored.key}")
            print(f"    sha256 stored   {stored.sha256}\n    sha256 received {sha256}", flush=True)
            damaged.append(stored.index)
    return damaged


def first_difference(left: list[int], right: list[int]) -> int | None:
    return next(
        (index for index, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1]),
        None,
    )


@dataclass
class FirstToken:
    """The state from which greedy decoding starts, and what it took to get there."""

    logits: torch.Tensor
    cache: DynamicCache
    seconds: float


class Reader:
    """One prompt and two ways to its first token."""

    def __init__(self, model: Model, store: ChunkStore, prompt: list[int]) -> None:
        self.model = model
        self.store = store
        self.prompt = prompt
        self.chunks = store.chunks_of(prompt)

    def fetch(self) -> tuple[list[ReceivedChunk], float]:
        start = time.perf_counter()
        received = self.store.get(self.chunks)
        return received, time.perf_counter() - start

    def compute_tail(self, received: list[ReceivedChunk]) -> FirstToken:
        start = time.perf_counter()
        cache = self.model.cache_of(torch.cat([got.kv for got in received], dim=2))
        logits = self.model.forward(self.prompt[received[-1].chunk.end :], cache)
        return FirstToken(logits, cache, time.perf_counter() - start)

    def compute_all(self, split: int) -> FirstToken:
        """Split where processes A and B split it between them, so that rounding is the same."""
        start = time.perf_counter()
        cache = self.model.new_cache()
        self.model.forward(self.prompt[:split], cache)
        logits = self.model.forward(self.prompt[split:], cache)
        return FirstToken(logits, cache, time.perf_counter() - start)


def answer(
    model: Model, store: ChunkStore, manifest: Manifest, count: int, rounds: int
) -> tuple[Exit, Answer]:
    prompt = model.prompt(DOCUMENT.read_text(), manifest.question)
    if sha256_of_tokens(prompt) != manifest.prompt_sha256:
        raise SystemExit("this prompt is not the one whose KV cache was stored")
    reader = Reader(model, store, prompt)

    received, seconds = reader.fetch()
    result = Answer(
        chunks_asked=len(reader.chunks),
        chunks_hit=len(received),
        bytes_received=sum(got.kv.nbytes for got in received),
        damaged=find_damage(received, manifest),
        fetch_seconds=[seconds],
    )
    megabytes = result.bytes_received / 1e6
    print(
        f"  received {result.chunks_hit} of {result.chunks_asked} chunks, {megabytes:.1f} MB",
        flush=True,
    )
    if not received:
        return Exit.NOTHING_CACHED, result
    if result.damaged:
        return Exit.CHUNK_DAMAGED, result
    split = received[-1].chunk.end
    result.tail_tokens = len(prompt) - split

    cached = reader.compute_tail(received)
    result.tail_seconds.append(cached.seconds)
    tokens = model.continue_greedily(cached.logits, cached.cache, count)
    result.text = model.decode(tokens)

    print("  computing the same without the cache", flush=True)
    full = reader.compute_all(split)
    result.uncached_seconds.append(full.seconds)
    result.kv_recomputed_equal = torch.equal(
        model.kv_of(full.cache)[:, :, :split], model.kv_of(cached.cache)[:, :, :split]
    )
    result.logits_equal = torch.equal(full.logits, cached.logits)
    result.tokens_compared = count
    result.first_difference = first_difference(
        tokens, model.continue_greedily(full.logits, full.cache, count)
    )
    if result.first_difference is not None:
        return Exit.TOKENS_DIFFER, result

    print("  measuring both again", flush=True)
    for _ in range(rounds - 1):
        received, seconds = reader.fetch()
        if len(received) != result.chunks_hit:
            raise SystemExit(f"only {len(received)} chunks are left of {result.chunks_hit}")
        result.fetch_seconds.append(seconds)
        result.tail_seconds.append(reader.compute_tail(received).seconds)
        result.uncached_seconds.append(reader.compute_all(split).seconds)
    return Exit.IDENTICAL, result


def main() -> Exit:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--manifest", type=Path, required=True, help="file that prefill.py wrote")
    parser.add_argument("--result", type=Path, required=True, help="file to write")
    parser.add_argument(
        "--tokens", type=int, default=64, help="how many tokens to generate and compare"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often to measure the time to the first token"
    )
    arguments = parser.parse_args()

    manifest = Manifest.read(arguments.manifest)
    torch.set_num_threads(manifest.threads)
    model = Model()
    store = ChunkStore(arguments.host, arguments.port, model)
    status, result = answer(model, store, manifest, arguments.tokens, arguments.rounds)
    result.write(arguments.result)
    return status


if __name__ == "__main__":
    sys.exit(main())
