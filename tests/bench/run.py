#!/usr/bin/env python3
"""Compares kvasird with a null server, Redis and LMCache's Python server, side by side.

There are two suites: lm (the default) and mp, LMCache's multiprocess protocol over ZeroMQ.

Every cell (operation, size, connections, depth) is run in rounds. In a round all targets are
put under the same load one after the other, and the order rotates from round to round. Reported
are the median and range of each target, and the median and range of the per-round ratios: a
slow phase of the machine hits both sides of a ratio.

There is no pass or fail on time. The exit code is 1 when any answer was wrong, or when a server
failed; 2 when nothing could be measured.
"""

import argparse
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import cells
import mp_suite
import report
from servers import ServerError, find_targets

ROOT = Path(__file__).resolve().parents[2]
EVERY_TARGET = {
    "lm": ["null", "null-quickack", "kvasird", "kvasird-nochecksum", "redis", "python"],
    "mp": mp_suite.EVERY_TARGET,
}
OTHER_CELLS = {"lm": ["memcpy", "start", "object-memory"], "mp": ["start"]}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("suite", nargs="?", choices=EVERY_TARGET, default="lm")
    add("--cells", default="", metavar="REGEX", help="only the cells whose name it finds")
    add("--targets", help="comma-separated (default: all of the suite)")
    add("--secs", type=float, default=1.0, help="seconds per measurement")
    add("--rounds", type=int, default=7)
    add("--quick", action="store_true", help="2 rounds of 0.2 s, 20 000 objects: a smoke run")
    add("--objects", type=int, default=1_000_000, help="objects of the cell object-memory")
    add("--bin-dir", type=Path, default=ROOT / "build/release/bin")
    add("--kvasird", type=Path, help="default: kvasird in --bin-dir")
    add("--kvasird-args", default="", help="further arguments for kvasird, separated by blanks")
    add("--python", type=Path, default=ROOT / "build/python/bin/python",
        help="an interpreter that has LMCache (default: %(default)s)")
    add("--pool-size", default="4GiB", help="of kvasird (object-memory: 5GiB)")
    add("--out", type=Path, help="write the results to this JSON file, after every cell")
    add("--markdown", nargs="?", const="-", metavar="FILE",
        help="print tables: of this run, or of the JSON FILE of an earlier one")
    add("--list", action="store_true", help="list the cells and leave")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.secs = 2, 0.2
        arguments.objects = min(arguments.objects, 20_000)
    if arguments.rounds < 1 or arguments.secs < 0.01 or arguments.objects < 1000:
        parser.error("--rounds >= 1, --secs >= 0.01 and --objects >= 1000 please")
    every = EVERY_TARGET[arguments.suite]
    arguments.targets = arguments.targets.split(",") if arguments.targets else every
    if unknown := set(arguments.targets) - set(every):
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}")
    arguments.kvasird = arguments.kvasird or arguments.bin_dir / "kvasird"
    return arguments


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else "unknown"


def describe_machine():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": cpu[1] if cpu else platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory / 1e9),
            "kernel": platform.release()}


def describe_versions(targets):
    versions = {"source": first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
                "interpreter": platform.python_version()}
    if "kvasird" in targets:
        versions["kvasird"] = first_line([targets["kvasird"].command[0], "--version"])
    if "redis" in targets:
        line = first_line([targets["redis"].command[0], "--version"])
        found = re.search(r"v=(\S+)", line)
        versions["redis"] = found[1] if found else line
    if "python" in targets:
        versions["lmcache"] = first_line(
            [targets["python"].command[0], "-c",
             "import importlib.metadata as m; print(m.version('lmcache'))"])
    return versions


class Run:
    """The state of one run: what was measured so far, and what went wrong."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.log_dir = ROOT / "build/bench/logs"
        self.targets, left_out = self.find(arguments.pool_size)
        self.report = {
            "machine": describe_machine(),
            "versions": describe_versions(self.targets),
            "run": {"date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "minutes"),
                    "rounds": arguments.rounds, "secs": arguments.secs,
                    "pool_size": arguments.pool_size,
                    "load_average_start": os.getloadavg(), "load_average_end": os.getloadavg()},
            "left_out": left_out, "complaints": [], "cells": []}

    def find(self, pool_size):
        chosen = self.arguments
        find = mp_suite.find_targets if chosen.suite == "mp" else find_targets
        return find(chosen.targets, chosen.bin_dir, chosen.kvasird,
                            chosen.kvasird_args.split(), chosen.python, pool_size)

    def complain(self, text):
        print(f"complaint: {text}", file=sys.stderr, flush=True)
        self.report["complaints"].append(text)

    def finish_cell(self, cell):
        self.report["cells"].append({**cell, "load_average": os.getloadavg()})
        self.report["run"]["load_average_end"] = os.getloadavg()
        if self.arguments.out:
            self.arguments.out.parent.mkdir(parents=True, exist_ok=True)
            partial = self.arguments.out.with_suffix(".partial")
            partial.write_text(json.dumps(self.report, indent=1) + "\n")
            partial.replace(self.arguments.out)

    def wants(self, name):
        return re.search(self.arguments.cells, name) is not None

    def load(self):
        """The cells of load: all servers run at once, and only one has work at a time."""
        chosen = [cell for cell in load_cells(self.arguments) if self.wants(cell.name)]
        if not chosen:
            return
        used = {name for cell in chosen for name in cell.targets()} & set(self.targets)
        servers = {}
        try:
            for name in [name for name in self.targets if name in used]:
                try:
                    servers[name] = self.targets[name].start(self.log_dir)
                    servers[name].settle()
                except ServerError as error:
                    self.complain(str(error))
            for cell in chosen:
                result = cells.measure_load_cell(
                    cell, self.targets, servers, self.arguments.bin_dir, self.arguments.secs,
                    self.arguments.rounds, self.complain)
                self.finish_cell(result)
                print_progress(result)
        finally:
            for server in servers.values():
                if complaint := server.stop():
                    self.complain(complaint)

    def others(self):
        chosen = self.arguments
        if chosen.suite == "lm" and self.wants("memcpy"):
            self.finish_cell(cells.measure_memcpy(chosen.bin_dir, chosen.secs, chosen.rounds))
        if self.wants("start"):
            self.finish_cell(cells.measure_start(self.targets, self.log_dir, chosen.rounds,
                                                 self.complain))
        if chosen.suite == "lm" and self.wants("object-memory"):
            # A slot is 4 KiB at least: a million of them need more than the usual pool.
            roomy, _ = self.find("5GiB")
            self.finish_cell(cells.measure_object_memory(
                roomy, self.log_dir, chosen.bin_dir, chosen.objects, self.complain))


def load_cells(arguments):
    return mp_suite.load_cells(arguments.python) if arguments.suite == "mp" else cells.load_cells()


def print_progress(cell):
    rates = "  ".join(f"{name} {entry['rate']['median']:.0f}"
                      for name, entry in cell["targets"].items() if entry["rate"])
    print(f"{cell['name']:22} {cell['unit']}  {rates}", file=sys.stderr, flush=True)


def main():
    # Leave through the finally clauses that stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    if arguments.markdown not in (None, "-"):
        print(report.markdown(json.loads(Path(arguments.markdown).read_text())))
        return 0
    if arguments.list:
        names = [cell.name for cell in load_cells(arguments)]
        print("\n".join([*names, *OTHER_CELLS[arguments.suite]]))
        return 0
    run = Run(arguments)
    for name, why in run.report["left_out"].items():
        print(f"left out: {name}: {why}", file=sys.stderr)
    if "kvasird" in run.report["left_out"]:
        print("error: build kvasird first, or leave it out with --targets", file=sys.stderr)
        return 2
    run.load()
    run.others()
    if not run.report["cells"]:
        print("error: no cell has such a name; see --list", file=sys.stderr)
        return 2
    if arguments.markdown:
        print(report.markdown(run.report))
    elif not arguments.out:
        print(json.dumps(run.report, indent=1))
    return 1 if run.report["complaints"] else 0


if __name__ == "__main__":
    sys.exit(main())
