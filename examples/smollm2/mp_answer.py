#!/usr/bin/env python3
"""Process B: answers the same prompt with the KV cache of process A, for each world size, and once
without it.

Exit status: 0 all answers are identical and a flipped byte was noticed; 3 not everything came from
the cache; 4 a chunk is not what was stored, or damage went unnoticed; 5 the tokens differ.
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from chunk_store import sha256_of_kv
from handover import DOCUMENT, QUESTION, Exit, MpManifest, sha256_of_tokens
from model import Model
from paged_engine import PagedEngine


@dataclass
class Reference:
    """The answer without the cache."""

    tokens: list[int]
    logits: torch.Tensor
    seconds: float  # to the first token


def damaged_chunks(kv: torch.Tensor, manifest: MpManifest) -> list[int]:
    received = [sha256_of_kv(chunk) for chunk in kv.split(manifest.chunk_tokens, dim=2)]
    pairs = zip(received, manifest.chunk_sha256, strict=True)
    return [index for index, (got, stored) in enumerate(pairs) if got != stored]


def answer_from_cache(
    engine: PagedEngine, model: Model, prompt: list[int], manifest: MpManifest, reference: Reference
) -> Exit:
    start = time.perf_counter()
    kv = engine.fetch(prompt)
    fetched = time.perf_counter()
    tokens = kv.shape[2]
    if tokens != len(manifest.chunk_sha256) * manifest.chunk_tokens:
        print(f"  only {tokens} tokens came from the cache", flush=True)
        return Exit.NOTHING_CACHED
    if damaged := damaged_chunks(kv, manifest):
        print(f"  chunks {damaged} are not those that were stored", flush=True)
        return Exit.CHUNK_DAMAGED
    checked = time.perf_counter()
    cache = model.cache_of(kv)
    logits = model.forward(prompt[tokens:], cache)
    seconds = fetched - start + time.perf_counter() - checked
    equal = "bit-equal" if torch.equal(logits, reference.logits) else "not bit-equal"
    print(
        f"  world size {len(engine.workers)}, {engine.transfer()}: {tokens} tokens,"
        f" {kv.nbytes / 1e6:.1f} MB in {fetched - start:.3f} s; first token after {seconds:.2f} s"
        f" instead of {reference.seconds:.2f} s; first logits {equal}",
        flush=True,
    )
    if model.continue_greedily(logits, cache, len(reference.tokens)) != reference.tokens:
        print("  the answer from the cache is not the answer without it", flush=True)
        return Exit.TOKENS_DIFFER
    return Exit.IDENTICAL


def notices_damage(engine: PagedEngine, prompt: list[int], manifest: MpManifest) -> bool:
    """Stores the cached chunks again with one byte flipped; exactly that chunk must be noticed."""
    kv = engine.fetch(prompt)
    victim = len(manifest.chunk_sha256) // 2
    engine.clear()
    kv[:, :, victim * manifest.chunk_tokens].view(torch.uint8)[0, 0, 0] ^= 1
    engine.store(prompt, kv)
    return damaged_chunks(engine.fetch(prompt), manifest) == [victim]


def main() -> Exit:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="of the MP server, e.g. tcp://127.0.0.1:5555")
    parser.add_argument("--manifest", type=Path, required=True, help="what mp_prefill.py wrote")
    parser.add_argument("--world-size", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--tokens", type=int, default=32, help="how many tokens to generate and compare"
    )
    arguments = parser.parse_args()

    manifest = MpManifest.read(arguments.manifest)
    torch.set_num_threads(manifest.threads)
    model = Model()
    prompt = model.prompt(DOCUMENT.read_text(), QUESTION)
    if sha256_of_tokens(prompt) != manifest.prompt_sha256:
        raise SystemExit("this prompt is not the one whose KV cache was stored")

    # Split where processes A and B split it between them, so that rounding is the same.
    split = len(manifest.chunk_sha256) * manifest.chunk_tokens
    start = time.perf_counter()
    cache = model.new_cache()
    model.forward(prompt[:split], cache)
    logits = model.forward(prompt[split:], cache)
    seconds = time.perf_counter() - start
    tokens = model.continue_greedily(logits, cache, arguments.tokens)
    reference = Reference(tokens, logits, seconds)

    for world_size in arguments.world_size:
        engine = PagedEngine(arguments.url, model, world_size, len(prompt))
        status = answer_from_cache(engine, model, prompt, manifest, reference)
        if status == Exit.IDENTICAL and world_size == arguments.world_size[-1]:
            noticed = notices_damage(engine, prompt, manifest)
            print(f"  a flipped byte {'was' if noticed else 'WAS NOT'} noticed", flush=True)
            status = Exit.IDENTICAL if noticed else Exit.CHUNK_DAMAGED
        engine.close()
        if status != Exit.IDENTICAL:
            return status
    print(f"  {len(tokens)} tokens identical: {model.decode(tokens)!r}", flush=True)
    return Exit.IDENTICAL


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # LMCache's clients leave threads that a normal exit would wait for.
    os._exit(status)
