#!/usr/bin/env python3
"""Process A: prefills the prompt, stores its KV cache through an MP server for each world size."""

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from chunk_store import sha256_of_kv
from handover import DOCUMENT, QUESTION, MpManifest, sha256_of_tokens
from model import Model
from paged_engine import PagedEngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="of the MP server, e.g. tcp://127.0.0.1:5555")
    parser.add_argument("--manifest", type=Path, required=True, help="file to write")
    parser.add_argument("--world-size", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()

    model = Model()
    prompt = model.prompt(DOCUMENT.read_text(), QUESTION)
    engines = {
        world_size: PagedEngine(arguments.url, model, world_size, len(prompt))
        for world_size in arguments.world_size
    }
    first = engines[arguments.world_size[0]]
    chunks, chunk_tokens = first.full_chunks(prompt), first.chunk_tokens
    print(f"  prompt of {len(prompt)} tokens, {chunks} full chunks", flush=True)

    # It ends where the stored chunks end, as in prefill.py.
    cache = model.new_cache()
    model.forward(prompt[: chunks * chunk_tokens], cache)
    kv = model.kv_of(cache)
    manifest = MpManifest(
        threads=torch.get_num_threads(),
        prompt_sha256=sha256_of_tokens(prompt),
        chunk_tokens=chunk_tokens,
        chunk_sha256=[sha256_of_kv(chunk) for chunk in kv.split(chunk_tokens, dim=2)],
    )
    for world_size, engine in engines.items():
        start = time.perf_counter()
        engine.store(prompt, kv)
        seconds = time.perf_counter() - start
        print(
            f"  world size {world_size}, {engine.transfer()}: stored {kv.nbytes / 1e6:.1f} MB"
            f" in {seconds:.3f} s",
            flush=True,
        )
    manifest.write(arguments.manifest)
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # LMCache's clients leave threads that a normal exit would wait for.
    os._exit(0)
