"""Starts, watches and stops the servers that the benchmark compares."""

import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 20
SETTLE_TIMEOUT_S = 120


class ServerError(Exception):
    """A server that did not start, or died."""


@dataclass
class Server:
    """A running server on 127.0.0.1."""

    name: str
    process: subprocess.Popen
    port: int
    start_seconds: float

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        """Ends it with SIGTERM, with SIGKILL if it ignores that. Returns a complaint or None."""
        if not self.alive():
            return f"{self.name} died with status {self.process.returncode}"
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} ignored SIGTERM for {STOP_TIMEOUT_S} s"
        if self.process.returncode not in (0, -signal.SIGTERM):
            return f"{self.name} left with status {self.process.returncode} after SIGTERM"
        return None

    def memory(self):
        """Bytes of resident memory by kind, from /proc/PID/status."""
        wanted = {"VmRSS": "rss", "RssAnon": "anon", "RssFile": "file", "RssShmem": "shmem"}
        result = {}
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            text = ""
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key in wanted:
                result[wanted[key]] = int(value.split()[0]) * 1024
        if not result:  # a process that ended has no memory
            raise ServerError(f"{self.name} died")
        return result

    def settle(self):
        """Waits until its memory stands still: a pool is pre-faulted in the background."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        before, still = self.memory(), 0
        while still < 3 and time.monotonic() < deadline:
            time.sleep(0.3)
            now = self.memory()
            still = still + 1 if now == before else 0
            before = now
        return before


@dataclass(frozen=True)
class Target:
    """A kind of server. `command` may hold {port} and {other port}, replaced by free ones."""

    name: str
    title: str
    protocol: str  # lm, resp or mp
    command: list = field(default_factory=list)
    keeps_values: bool = True
    # Prints "... ready lm=HOST:PORT mp=HOST:PORT ..." once it serves; others are asked until
    # they answer.
    announces: bool = True

    def start(self, log_dir):
        port = 0 if self.announces else free_port()
        ports = {"{port}": str(port), "{other port}": str(free_port())}
        command = [ports.get(part, part) for part in self.command]
        log_dir.mkdir(parents=True, exist_ok=True)
        with open(log_dir / f"{self.name}.log", "ab") as log:
            start = time.monotonic()
            try:
                process = subprocess.Popen(
                    command, env={**os.environ, "LMCACHE_TRACK_USAGE": "false"}, stdin=subprocess.DEVNULL, stderr=log,
                    stdout=subprocess.PIPE if self.announces else log)
            except OSError as error:
                raise ServerError(f"{self.name}: {error}") from error
        try:
            if self.announces:
                port = read_announced_port(process, self.protocol)
            else:
                wait_until_served(process, self.protocol, port)
        except ServerError as error:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
            raise ServerError(f"{self.name}: {error}; see {log_dir / self.name}.log") from error
        return Server(self.name, process, port, time.monotonic() - start)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class NoServer:
    """Stands where nothing runs between the measurements: they start a program of their own."""

    pid = port = 0
    alive = staticmethod(lambda: True)
    settle = stop = staticmethod(lambda: None)


@dataclass(frozen=True)
class Program:
    """A target that is measured without a server."""

    name: str
    command: list
    protocol: str = "none"

    def start(self, _log_dir):
        return NoServer()


def read_announced_port(process, protocol):
    """Reads up to the ready line; what the server prints later is dropped."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    text = b""
    descriptor = process.stdout.fileno()
    while True:
        if not select.select([descriptor], [], [], max(0, deadline - time.monotonic()))[0]:
            raise ServerError(f"not ready within {READY_TIMEOUT_S} s")
        piece = os.read(descriptor, 4096)
        if not piece:
            raise ServerError(f"ended with status {process.wait()} before it was ready")
        text += piece
        if ready := re.search(rb"^\S+ ready .*\n", text, re.MULTILINE):
            break
    threading.Thread(target=process.stdout.read, daemon=True).start()
    port = re.search(rf"\b{protocol}=\S*:(\d+)", ready[0].decode())
    if not port:
        raise ServerError(f"does not serve {protocol}: {ready[0].decode().strip()}")
    return int(port[1])


def wait_until_served(process, protocol, port):
    """Asks until a first answer comes, so that "ready" means served and not just listening."""
    exist = struct.pack("<9i", 3, 0, 1, 2, 0, 0, 0, 0, 0) + b"bench/start@1@0@1@half".ljust(150)
    # ZeroMQ's greeting; a server without one answers nothing else before it has it.
    greeting = b"\xff" + bytes(8) + b"\x7f\x03"
    question = {"lm": exist, "resp": b"PING\r\n", "mp": greeting}[protocol]
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"ended with status {process.returncode} before it was ready")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
                probe.sendall(question)
                if probe.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.005)
    raise ServerError(f"not ready within {READY_TIMEOUT_S} s")


def install_redis():
    """Installs Debian's redis-server without starting it as a service. Returns its path."""
    found = shutil.which("redis-server")
    if found or os.geteuid() != 0 or not shutil.which("apt-get"):
        return found
    # invoke-rc.d starts nothing in runlevel 1.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "redis-server"],
                   env=environment, stdout=subprocess.DEVNULL, check=False)
    return shutil.which("redis-server")


def find_targets(wanted, bin_dir, kvasird, kvasird_args, python, pool_size):
    """Returns ({name: Target}, {name: why it is left out}) for the names wanted."""
    serve = [str(kvasird), "--lm-port", "0", "--mp-port", "off", "--http-port", "0",
             "--pool-size", pool_size,
             "--log-level", "warn", *kvasird_args]
    null = str(bin_dir / "lm_null")
    redis = install_redis() if "redis" in wanted else None
    every = [
        Target("null", "null server", "lm", [null], keeps_values=False),
        Target("null-quickack", "null server, quick ACK", "lm", [null, "--quickack"],
               keeps_values=False),
        Target("kvasird", "kvasird", "lm", serve),
        Target("kvasird-nochecksum", "kvasird, integrity off", "lm",
               [*serve, "--checksum", "off"]),
        Target("redis", "Redis", "resp",
               [redis or "", "--bind", "127.0.0.1", "--port", "{port}", "--save", "",
                "--appendonly", "no"], announces=False),
        Target("python", "LMCache server (Python)", "lm",
               [str(python), "-m", "lmcache.v1.server", "127.0.0.1", "{port}"],
               announces=False),
    ]
    return available(every, wanted)


def available(every, wanted):
    """Parts the wanted targets into ({name: Target}, {name: why it is left out})."""
    found, missing = {}, {}
    for target in every:
        if target.name not in wanted:
            continue
        program = target.command[0]
        if program and os.access(program, os.X_OK):
            found[target.name] = target
        else:
            missing[target.name] = f"no program {program or 'redis-server'}"
    return found, missing
