#!/usr/bin/env python3
"""Process A: prefills the prompt, stores its KV cache in chunks, and notes a sha256 of each."""

import argparse
import time
from pathlib import Path

import torch

from chunk_store import ChunkStore, sha256_of_kv
from handover import DOCUMENT, QUESTION, Manifest, StoredChunk, sha256_of_tokens
from model import Model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--manifest", type=Path, required=True, help="file to write")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    model = Model()
    store = ChunkStore(arguments.host, arguments.port, model)
    prompt = model.prompt(DOCUMENT.read_text(), arguments.question)
    chunks = store.chunks_of(prompt)
    print(f"  prompt of {len(prompt)} tokens, {len(chunks)} full chunks", flush=True)

    # The forward pass ends where the stored chunks end: how a row is rounded depends on how many
    # rows are computed together, and the reader's own run is split in the same place.
    start = time.perf_counter()
    cache = model.new_cache()
    model.forward(prompt[: chunks[-1].end], cache)
    prefill_seconds = time.perf_counter() - start
    kv = model.kv_of(cache)
    start = time.perf_counter()
    store.put(chunks, kv)
    store_seconds = time.perf_counter() - start

    rows = [kv[:, :, chunk.start : chunk.end] for chunk in chunks]
    manifest = Manifest(
        question=arguments.question,
        threads=arguments.threads,
        prompt_tokens=len(prompt),
        prompt_sha256=sha256_of_tokens(prompt),
        chunks=[
            StoredChunk(
                chunk.index,
                chunk.start,
                chunk.end,
                chunk.key.to_string(),
                kv.nbytes,
                sha256_of_kv(kv),
            )
            for chunk, kv in zip(chunks, rows, strict=True)
        ],
        prefill_seconds=prefill_seconds,
        store_seconds=store_seconds,
    )
    manifest.write(arguments.manifest)
    print(
        f"  stored {manifest.size_bytes / 1e6:.1f} MB in {manifest.store_seconds:.3f} s", flush=True
    )


if __name__ == "__main__":
    main()
