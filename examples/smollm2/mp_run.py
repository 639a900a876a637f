#!/usr/bin/env python3
"""Runs the example against an MP server: process A stores, process B answers from the cache.

Exit status 0 only if every chunk came back byte for byte, for a world size of 1 and of 2, the
generated tokens are those of a run without the cache, and one flipped byte was noticed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The first run converts the model; a busy machine may take several times as long as an idle one.
PROCESS_TIMEOUT_SECONDS = 900


def run(script: str, url: str, manifest: Path) -> int:
    # Threads that spin while they wait for each other make a forward pass several times slower as
    # soon as anything else runs on the machine.
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "TQDM_DISABLE": "1"}
    command = [sys.executable, str(HERE / script), url, "--manifest", str(manifest)]
    return subprocess.run(command, env=environment, timeout=PROCESS_TIMEOUT_SECONDS).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="of the MP server, e.g. tcp://127.0.0.1:5555")
    parser.add_argument("--work-dir", type=Path, default=HERE.parents[1] / "build" / "smollm2")
    arguments = parser.parse_args()
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    manifest = arguments.work_dir / "mp_manifest.json"
    manifest.unlink(missing_ok=True)
    for title, script in (
        ("Process A: prefill and store", "mp_prefill.py"),
        ("Process B: answer from the cache", "mp_answer.py"),
    ):
        print(title, flush=True)
        try:
            status = run(script, arguments.url, manifest)
        except subprocess.TimeoutExpired:
            status = f"none within {PROCESS_TIMEOUT_SECONDS} s"
        if status != 0:
            print(f"FAILED: {script} ended with status {status}", file=sys.stderr)
            return 1
    print("PASSED: same bytes, same tokens, damage noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
