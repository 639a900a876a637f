"""The cells of the benchmark: what is measured, and how one measurement is taken."""

import json
import statistics
import subprocess
from dataclasses import asdict, dataclass

from servers import ServerError

KIB, MIB = 1024, 1024 * 1024
COMPARED = ["null", "kvasird", "kvasird-nochecksum", "redis", "python"]
MEMCPY_SIZES = [64 * KIB, MIB, 16 * MIB]
# Ratios that are reported, as (numerator, denominator).
RATIOS = [("kvasird", "null"), ("kvasird", "null-quickack"), ("kvasird", "redis"),
          ("kvasird", "python"), ("kvasird", "kvasird-nochecksum"),
          ("kvasird-nochecksum", "null"), ("kvasird", "echo"), ("kvasird", "memcpy"),
          ("kvasird-inline", "python-inline")]


@dataclass(frozen=True)
class LoadCell:
    """A load that every target is put under, one after the other, in every round."""

    name: str
    op: str
    size_bytes: int
    connections: int
    depth: int = 1
    split: bool = False
    idle: int = 0

    @property
    def unit(self):
        return "op/s" if self.op == "exist" or self.split else "MB/s"

    def measure(self, target, server, bin_dir, secs):
        return measure_load(self, target, server, bin_dir, secs)

    def targets(self):
        if self.split:  # two sends are LMCache's habit; Redis' protocol has no such client
            return ["null", "null-quickack", "kvasird", "kvasird-nochecksum", "python"]
        return COMPARED


def size_name(size_bytes):
    return f"{size_bytes // MIB}MiB" if size_bytes >= MIB else f"{size_bytes // KIB}KiB"


def load_cells():
    cells = [LoadCell(f"{op}-{size_name(size)}-c{connections}", op, size, connections)
             for op in ("put", "get")
             for size in (64 * KIB, MIB, 16 * MIB)
             for connections in (1, 8)]
    cells += [LoadCell(f"exist-d{depth}-c{connections}", "exist", 64, connections, depth)
              for depth in (1, 32) for connections in (1, 8)]
    cells += [LoadCell(f"split-{size_name(size)}-c1", "put", size, 1, split=True)
              for size in (4 * KIB, 64 * KIB, MIB)]
    cells.append(LoadCell("idle300-get-64KiB-c8", "get", 64 * KIB, 8, idle=300))
    return cells


def run_program(command, timeout):
    """Runs a program that prints one JSON object. Exit code 3 (a wrong answer) is a result."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"no result within {timeout} s") from error
    if done.returncode not in (0, 3):
        raise ServerError(done.stderr.strip() or f"{command[0]}: status {done.returncode}")
    return json.loads(done.stdout)


def measure_load(cell, target, server, bin_dir, secs):
    """One run of lm_load against one target."""
    command = [str(bin_dir / "lm_load"), "--port", str(server.port),
               "--protocol", target.protocol, "--op", cell.op, "--size", str(cell.size_bytes),
               "--connections", str(cell.connections), "--depth", str(cell.depth),
               "--idle", str(cell.idle), "--secs", str(secs),
               "--warmup", str(min(0.2, secs)), "--server-pid", str(server.pid)]
    if not target.keeps_values:
        command += ["--check", "length"]
    if cell.split:
        command += ["--split", "--keys", "8"]  # each preloaded key may cost a stall of 44 ms
    result = run_program(command, timeout=120 + 10 * secs)
    result["rate"] = result["ops_per_s"] if cell.unit == "op/s" else result["mb_per_s"]
    return result


def spread(values):
    """Median and range; None without values."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def rotated(names, round_index):
    """Every target comes first, second, ... equally often, so that drift hits all alike."""
    shift = round_index % len(names) if names else 0
    return names[shift:] + names[:shift]


def ratios_of(rounds_by_target):
    """Median and range of the per-round ratios: both sides ran within the same seconds."""
    result = {}
    for over, under in RATIOS:
        pairs = zip(rounds_by_target.get(over, []), rounds_by_target.get(under, []))
        values = [a["rate"] / b["rate"] for a, b in pairs if a and b and b["rate"]]
        if values:
            result[f"{over}/{under}"] = {**spread(values), "pairs": len(values)}
    return result


def measure_load_cell(cell, targets, servers, bin_dir, secs, rounds, complain):
    """All rounds of one cell over all running targets."""
    names = [name for name in cell.targets() if name in servers and servers[name].alive()]
    by_target = {name: [] for name in names}
    for index in range(rounds):
        for name in rotated(names, index):
            try:
                result = cell.measure(targets[name], servers[name], bin_dir, secs)
                if result["bad"]:
                    complain(f"{cell.name}: {result['bad']} wrong answers from {name}")
            except ServerError as error:
                complain(f"{cell.name}: {name}: {error}")
                result = None
            by_target[name].append(result)
    summary = {}
    for name, results in by_target.items():
        good = [result for result in results if result]
        summary[name] = {key: spread([result[key] for result in good])
                         for key in ("rate", "p50_us", "p99_us", "client_cpu_cores",
                                     "server_cpu_cores")}
        summary[name] |= {"bad": sum(result["bad"] for result in good), "rounds": results}
    return {"kind": "load", **asdict(cell), "unit": cell.unit, "targets": summary,
            "ratios": ratios_of(by_target)}


def measure_memcpy(bin_dir, secs, rounds):
    runs = {size: [] for size in MEMCPY_SIZES}
    for _ in range(rounds):
        for size, rates in runs.items():
            command = [str(bin_dir / "memcpy_rate"), "--size", str(size), "--secs", str(secs)]
            rates.append(run_program(command, timeout=60 + 2 * secs)["gb_per_s"])
    return {"kind": "memcpy", "name": "memcpy",
            "gb_per_s": {size_name(size): spread(rates) for size, rates in runs.items()}}


def measure_start(targets, log_dir, rounds, complain):
    """Start to ready, and what an idle server keeps resident beside its pool."""
    names = [name for name in ("kvasird", "redis", "python") if name in targets]
    seconds = {name: [] for name in names}
    memory = {name: [] for name in names}
    for index in range(rounds):
        for name in rotated(names, index):
            if name == "python" and index >= 3:
                continue  # 6 s each
            try:
                server = targets[name].start(log_dir)
            except ServerError as error:
                complain(f"start: {error}")
                continue
            seconds[name].append(server.start_seconds)
            try:
                memory[name].append(server.settle())
            except ServerError as error:
                complain(f"start: {error}")
            finally:
                if complaint := server.stop():
                    complain(f"start: {complaint}")
    result = {}
    for name in names:
        # The shared pool counts as RssShmem; nothing else of a server does.
        beside = [sample["rss"] - sample["shmem"] for sample in memory[name]]
        result[name] = {"start_seconds": spread(seconds[name]),
                        "idle_rss_bytes": spread([sample["rss"] for sample in memory[name]]),
                        "idle_shmem_bytes": spread([sample["shmem"] for sample in memory[name]]),
                        "idle_beside_pool_bytes": spread(beside), "samples": memory[name]}
    return {"kind": "start", "name": "start", "targets": result}


def measure_object_memory(targets, log_dir, bin_dir, object_count, complain):
    """What one more small object costs in anonymous memory.

    kvasird keeps the bytes of values in its shared pool, so its growth is the index alone;
    the others keep them in anonymous memory, so the value's size is taken off.
    """
    value_size = 64
    result = {}
    for name in ("kvasird", "redis", "python"):
        if name not in targets:
            continue
        # Some 20 000 PUTs a second: a tenth of the objects tells as much.
        count = object_count // 10 if name == "python" else object_count
        try:
            server = targets[name].start(log_dir)
        except ServerError as error:
            complain(f"object-memory: {error}")
            continue
        try:
            before = server.settle()
            filled = run_program(
                [str(bin_dir / "lm_load"), "--port", str(server.port), "--protocol",
                 targets[name].protocol, "--op", "fill", "--size", str(value_size),
                 "--objects", str(count), "--timeout", "120"], timeout=1200)
            after = server.settle()
        except ServerError as error:
            complain(f"object-memory: {name}: {error}")
            continue
        finally:
            if complaint := server.stop():
                complain(f"object-memory: {complaint}")
        if not filled["kept"]:
            complain(f"object-memory: {name} kept nothing")
            continue
        growth = (after["anon"] - before["anon"]) / filled["kept"]
        result[name] = {"objects": count, "kept": filled["kept"], "value_bytes": value_size,
                        "anon_bytes_per_object": round(growth, 1),
                        "beside_value_bytes_per_object":
                            round(growth if name == "kvasird" else growth - value_size, 1),
                        "before": before, "after": after}
    return {"kind": "object-memory", "name": "object-memory", "targets": result}
