"""smollm2_engine as a child process: texts in, its lines of JSON out."""

import json
import os
import subprocess
from pathlib import Path

POOL_SIZE = "64MiB"  # For some short texts; memory that is not there need not be faulted in.
TIMEOUT_SECONDS = 300


class EngineProcess:
    def __init__(self, program: str, model: str, directory: Path) -> None:
        self.program = program
        self.model = model
        self.directory = directory

    def start(self, role: str, texts: list[str], *options: str) -> subprocess.CompletedProcess:
        """Runs a role on texts, each a request, and waits for its end."""
        files = []
        for index, text in enumerate(texts):
            files.append(self.directory / f"{role}_{index}.txt")
            files[-1].write_bytes(text.encode())
        options = ("--pool-size", POOL_SIZE, *options)
        # Threads that spin while they wait slow down everything else on the machine.
        return subprocess.run(
            [self.program, "--model", self.model, role, *options, *files],
            env=os.environ | {"OMP_WAIT_POLICY": "passive"},
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_SECONDS,
        )

    def run(self, role: str, texts: list[str], *options: str) -> list[dict]:
        """The same; what it printed for each text."""
        ended = self.start(role, texts, *options)
        if ended.returncode != 0:
            raise SystemExit(f"{role} ended with {ended.returncode}: {ended.stderr}")
        # Not splitlines: it would also split at characters inside of a text.
        return [json.loads(line) for line in ended.stdout.removesuffix("\n").split("\n")]
