#!/usr/bin/env python3
"""Runs the example against an lm:// server: process A stores, process B answers from the cache.

Exit status 0 only if every chunk came back byte for byte, the generated tokens are those of a run
without the cache, and one byte flipped in the server was noticed.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from handover import Answer, Exit, Manifest, StoredChunk
from lm_wire import Connection, Value

HERE = Path(__file__).resolve().parent
# The first run converts the model; a busy machine may take several times as long as an idle one.
PROCESS_TIMEOUT_SECONDS = 900


class Failure(Exception):
    """The example did not show what it is meant to show."""


class Example:
    def __init__(self, host: str, port: int, work_dir: Path, tokens: int) -> None:
        self.host = host
        self.port = port
        self.tokens = tokens
        self.manifest_path = work_dir / "manifest.json"
        self.answer_path = work_dir / "answer.json"
        work_dir.mkdir(parents=True, exist_ok=True)

    def prefill(self) -> Manifest:
        self.manifest_path.unlink(missing_ok=True)
        status = self._process("prefill.py")
        if status != 0:
            raise Failure(f"process A ended with status {status}")
        return Manifest.read(self.manifest_path)

    def answer(self) -> tuple[int, Answer]:
        self.answer_path.unlink(missing_ok=True)
        status = self._process(
            "answer.py", "--result", str(self.answer_path), "--tokens", str(self.tokens)
        )
        if not self.answer_path.exists():
            raise Failure(f"process B ended with status {status} and without a result")
        return status, Answer.read(self.answer_path)

    def answer_with_flipped_byte(self, chunk: StoredChunk) -> tuple[int, Answer]:
        """Lets process B meet `chunk` with one byte in its middle flipped, then restores it."""
        with Connection(self.host, self.port) as connection:
            original = self._stored(connection, chunk)
            connection.put(chunk.key, original.with_flipped_byte(chunk.size_bytes // 2))
        try:
            return self.answer()
        finally:
            with Connection(self.host, self.port) as connection:
                connection.put(chunk.key, original)
                self._stored(connection, chunk)

    def _stored(self, connection: Connection, chunk: StoredChunk) -> Value:
        value = connection.get(chunk.key)
        if value is None or hashlib.sha256(value.payload).hexdigest() != chunk.sha256:
            raise Failure(f"a plain GET does not return chunk {chunk.index} as it was stored")
        return value

    def _process(self, script: str, *options: str) -> int:
        command = [sys.executable, str(HERE / script), self.host, str(self.port)]
        command += ["--manifest", str(self.manifest_path), *options]
        # LMCache asks for a fixed seed wherever processes share keys made of Python hashes.
        # Threads that spin while they wait for each other make a forward pass several times
        # slower as soon as anything else runs on the machine.
        environment = os.environ | {
            "PYTHONHASHSEED": "0",
            "OMP_WAIT_POLICY": "passive",
            "TQDM_DISABLE": "1",
        }
        try:
            return subprocess.run(
                command, env=environment, timeout=PROCESS_TIMEOUT_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            raise Failure(f"{script} did not end within {PROCESS_TIMEOUT_SECONDS} s") from None


def seconds(values: list[float]) -> str:
    return (
        f"{median(values):.2f} s (median of {len(values)}, {min(values):.2f} to {max(values):.2f})"
    )


def transfer(size_bytes: int, duration_seconds: float) -> str:
    megabytes = size_bytes / 1e6
    return (
        f"{megabytes:.1f} MB in {duration_seconds:.3f} s, {megabytes / duration_seconds:.0f} MB/s"
    )


def bits(equal: bool) -> str:
    return "bit-equal" if equal else "not bit-equal"


def print_table(manifest: Manifest, answer: Answer) -> None:
    hit, asked = answer.chunks_hit, answer.chunks_asked
    cached_tokens = manifest.prompt_tokens - answer.tail_tokens
    speedup = median(answer.uncached_seconds) / median(answer.cached_seconds)
    first_difference = answer.first_difference
    rows = {
        "prompt": f"{manifest.prompt_tokens} tokens: {cached_tokens} from the cache, "
        f"{answer.tail_tokens} computed",
        "chunks": f"{hit} of {asked} found, hit rate {hit / asked:.0%}",
        "stored by A": transfer(manifest.size_bytes, manifest.store_seconds),
        "fetched by B": transfer(answer.bytes_received, median(answer.fetch_seconds)),
        "KV bytes": f"sha256 equal in {hit - len(answer.damaged)} of {hit} chunks",
        "recomputed by B": f"KV {bits(answer.kv_recomputed_equal)}, "
        f"first logits {bits(answer.logits_equal)}",
        "first token, no cache": seconds(answer.uncached_seconds),
        "first token, cache": f"{seconds(answer.cached_seconds)}, {speedup:.1f} times as fast",
        f"{answer.tokens_compared} tokens": "identical"
        if first_difference is None
        else f"differ from token {first_difference} on",
        "answer": repr(answer.text),
    }
    print()
    for name, value in rows.items():
        print(f"  {name:<22} {value}")
    print(flush=True)


def run(example: Example) -> None:
    print("Process A: prefill and store", flush=True)
    manifest = example.prefill()

    print("Process B: answer from the cache", flush=True)
    status, answer = example.answer()
    if status == Exit.NOTHING_CACHED:
        raise Failure("nothing came from the cache")
    if status == Exit.CHUNK_DAMAGED:
        raise Failure(f"the server returned other bytes than were stored, chunks {answer.damaged}")
    print_table(manifest, answer)
    if status != Exit.IDENTICAL:
        raise Failure(f"the answer from the cache is not the answer without it (status {status})")
    if answer.chunks_hit != len(manifest.chunks):
        raise Failure(
            f"only {answer.chunks_hit} of {len(manifest.chunks)} stored chunks were found"
        )

    victim = manifest.chunks[len(manifest.chunks) // 2]
    print(
        f"Negative control: a byte of chunk {victim.index} is flipped, process B must refuse it",
        flush=True,
    )
    status, answer = example.answer_with_flipped_byte(victim)
    if status != Exit.CHUNK_DAMAGED or answer.damaged != [victim.index]:
        raise Failure(
            f"the flipped byte went unnoticed (status {status}, damaged {answer.damaged})"
        )
    print(f"  noticed, and chunk {victim.index} restored")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--work-dir", type=Path, default=HERE.parents[1] / "build" / "smollm2")
    parser.add_argument(
        "--tokens", type=int, default=64, help="how many tokens to generate and compare"
    )
    arguments = parser.parse_args()
    try:
        run(Example(arguments.host, arguments.port, arguments.work_dir, arguments.tokens))
    except (Failure, OSError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    print("PASSED: same bytes, same tokens, damage noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
