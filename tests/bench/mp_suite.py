"""The mp suite of the benchmark: LMCache's multiprocess protocol, its servers and its cells."""

from dataclasses import dataclass
from pathlib import Path

import cells
from servers import Program, Target, available

EVERY_TARGET = ["echo", "memcpy", "kvasird", "kvasird-nochecksum", "python", "kvasird-inline",
                "python-inline"]
CONTROL = ["echo", "kvasird", "python"]
SHM = ["memcpy", "kvasird", "kvasird-nochecksum", "python"]
INLINE = ["kvasird-inline", "python-inline"]
CHUNK_BYTES = 32 * cells.MIB
# Of prompts whose chunks nobody copies.
SMALL_CHUNK_BYTES = 32 * cells.KIB
PYTHON_CLIENTS = Path(__file__).resolve().parent / "mp_python_clients.py"


@dataclass(frozen=True)
class MpCell:
    """A load of the MP protocol; `native` clients are mp_load's, the others LMCache's own."""

    name: str
    op: str
    clients: int
    compared: list
    chunk_bytes: int = SMALL_CHUNK_BYTES
    tokens: int = 2048
    first_touch: bool = False
    python: str = ""  # the interpreter of LMCache's own clients; empty: native ones

    @property
    def unit(self):
        return "MB/s" if self.op in ("store", "retrieve") else "op/s"

    def targets(self):
        return self.compared

    def measure(self, target, server, bin_dir, secs):
        if target.name == "memcpy":
            return self.measure_memcpy(target, secs)
        if self.python:
            command = [self.python, str(PYTHON_CLIENTS)]
        else:
            command = [str(bin_dir / "mp_load"), "--warmup", str(min(0.5, secs)),
                       "--server-pid", str(server.pid)]
        command += ["--port", str(server.port), "--op", self.op, "--clients", str(self.clients),
                    "--size", str(self.chunk_bytes), "--tokens", str(self.tokens),
                    "--secs", str(secs)]
        if self.first_touch:
            command.append("--first-touch")
        if target.name == "echo":
            command.append("--echo")
        if self.unit == "MB/s":
            command += ["--transfer", "inline" if target.name in INLINE else "shm"]
        result = cells.run_program(command, timeout=120 + 10 * secs)
        result["rate"] = result["ops_per_s"] if self.unit == "op/s" else result["mb_per_s"]
        return result

    def measure_memcpy(self, target, secs):
        command = [*target.command, "--size", str(self.chunk_bytes), "--secs", str(secs)]
        rate = cells.run_program(command, timeout=60 + 2 * secs)["gb_per_s"] * 1000
        return {"rate": rate, "p50_us": None, "p99_us": None, "client_cpu_cores": None,
                "server_cpu_cores": None, "bad": 0}


def load_cells(python):
    """All cells; those of LMCache's own clients carry `python`, the interpreter that has it."""
    result = []
    for prefix, interpreter in (("", ""), ("lmcache-", str(python))):
        for clients in (1, 8):
            def add(name, op, compared, **options):
                result.append(MpCell(f"{prefix}{name}-c{clients}", op, clients, compared,
                                     python=interpreter, **options))
            add("ping", "ping", CONTROL)
            add("miss-2048", "miss", CONTROL)
            add("hit-256", "hit", CONTROL)
            if clients == 1:
                add("miss-131072", "miss", CONTROL, tokens=131072)
            for op in ("store", "retrieve"):
                add(f"shm-{op}-32MiB", op, SHM, chunk_bytes=CHUNK_BYTES)
                if clients == 1 and not prefix:
                    add(f"shm-{op}-32MiB-first-touch", op, SHM, chunk_bytes=CHUNK_BYTES,
                        first_touch=True)
                if clients == 1:
                    add(f"inline-{op}-32MiB", op, INLINE, chunk_bytes=CHUNK_BYTES)
    return result


def find_targets(wanted, bin_dir, kvasird, kvasird_args, python, pool_size):
    """As `servers.find_targets`, of this suite."""
    serve = [str(kvasird), "--lm-port", "off", "--mp-port", "0", "--http-port", "off",
             "--pool-size", pool_size, "--log-level", "warn", *kvasird_args]
    lmcache = [str(python), "-m", "lmcache.cli.main", "server", "--host", "127.0.0.1",
               "--port", "{port}", "--http-port", "{other port}", "--l1-size-gb",
               pool_size.removesuffix("GiB"), "--eviction-policy", "LRU",
               "--supported-transfer-mode", "engine_driven", "--no-l1-use-lazy"]
    every = [
        Target("echo", "echo", "mp", [str(bin_dir / "mp_echo")], keeps_values=False),
        Program("memcpy", [str(bin_dir / "memcpy_rate")]),
        Target("kvasird", "kvasird", "mp", [*serve, "--shm", "on"]),
        Target("kvasird-nochecksum", "kvasird, checksum off", "mp",
               [*serve, "--shm", "on", "--checksum", "off"]),
        Target("python", "LMCache server (Python)", "mp",
               [*lmcache, "--shm-name", "kvasir_bench"], announces=False),
        Target("kvasird-inline", "kvasird, inline", "mp", [*serve, "--shm", "off"]),
        Target("python-inline", "LMCache server (Python), inline", "mp", lmcache,
               announces=False),
    ]
    return available(every, wanted)
