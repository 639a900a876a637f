#!/usr/bin/env python3
"""Runs the administrative commands of LMCache's own command line against a server's HTTP port.

  lmcache_cli_check.py HTTP_HOST:PORT MP_HOST:PORT [--chunk-size N] [--pool-gb N]

ping, describe, kvcache clear, quota: their exit status and the fields that they show. A registration and a stored
chunk over the MP port give them something to show. The exit status is the number of FAILs, at most 100. LMCache's
own server fails three rows: it has no eviction policy and no model to show for this path, and counts no usage.
"""

import argparse
import json
import os
import re
import subprocess
import sys

import mp_engine  # noqa: F401  silences LMCache
from checklist import Checklist
from mp_raw_client import RawClient

COMMAND_TIMEOUT_S = 60
SALT = "cli-check"


class CliCheck:
    def __init__(self, url, mp_url, chunk_size, pool_gb, rows):
        self.url = url
        self.client = RawClient(mp_url, "cli")
        self.chunk_size = chunk_size
        self.pool_gb = pool_gb
        self.check = rows.check

    def run(self, *arguments):
        """Exit status and standard output of `lmcache ARGUMENTS --url URL`."""
        command = [sys.executable, "-m", "lmcache.cli.main", *arguments, "--url", self.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
        return done.returncode, done.stdout

    def show(self, *arguments):
        """What the command shows; an exit status of its own is a failure."""
        status, output = self.run(*arguments, "--format", "json")
        if status != 0:
            raise RuntimeError(f"lmcache {' '.join(arguments)} ended with status {status}")
        return json.loads(output)["metrics"]

    def ping(self):
        self.check("ping: OK", self.show("ping", "kvcache")["status"] == "OK")
        shown = subprocess.run(
            [sys.executable, "-m", "lmcache.cli.main", "ping", "kvcache", "--url", "http://127.0.0.1:1"],
            capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
        self.check("ping: fails where nothing listens", shown.returncode == 1)

    def describe(self):
        shown = self.show("describe", "kvcache")
        self.check("describe: health", shown["health"] == "OK", shown["health"])
        self.check("describe: chunk size", shown["chunk_size"] == self.chunk_size, shown["chunk_size"])
        self.check("describe: capacity", shown["l1_capacity_gb"] == self.pool_gb, shown["l1_capacity_gb"])
        self.check("describe: engine type, eviction policy", all(
            isinstance(shown[name], str) and shown[name] for name in ("engine_type", "eviction_policy")),
            (shown["engine_type"], shown["eviction_policy"]))
        self.check("describe: bytes used", re.fullmatch(r"\d+\.\d\d \(\d+\.\d%\)", shown["l1_used_gb"]),
                   shown["l1_used_gb"])
        self.check("describe: counts", all(
            type(shown[name]) is int for name in ("cached_objects", "active_sessions")))

    def registrations(self):
        self.instance = self.client.register()
        models = self.show("describe", "kvcache").get("models", [])
        mine = [model for model in models if model["model"] == self.client.model]
        self.check("describe: a registered model", len(mine) == 1 and mine[0]["world_size"] == 1, models)

    def clear(self):
        tokens = self.client.tokens(2)
        before = self.show("describe", "kvcache")["cached_objects"]
        self.client.store(tokens, self.instance, [self.client.payload(1), self.client.payload(2)])
        now = self.show("describe", "kvcache")["cached_objects"]
        self.check("describe: stored chunks are counted", now == before + 2, (before, now))
        status, output = self.run("kvcache", "clear")
        self.check("kvcache clear: OK", status == 0 and "OK" in output, status)
        self.check("kvcache clear: chunks are gone", self.client.probe(tokens) == 0)
        self.check("kvcache clear: and counted as gone",
                   self.show("describe", "kvcache")["cached_objects"] == 0)

    def quota(self):
        self.check("quota set", self.show("quota", "set", SALT, "--limit-gb", "0.5")
                   == {"cache_salt": SALT, "limit_gb": 0.5, "status": "ok"})
        self.check("quota get", self.show("quota", "get", SALT)
                   == {"cache_salt": SALT, "limit_gb": 0.5, "current_usage_gb": 0.0, "exists": True})
        size = 2 * self.client.payload(0).nbytes
        self.client.store(self.client.tokens(2), self.instance,
                          [self.client.payload(1), self.client.payload(2)], salt=SALT)
        usage = self.show("quota", "get", SALT)["current_usage_gb"] * 2**30
        self.check("quota get: what a tenant has stored", usage >= size, (usage, size))
        self.show("quota", "set", "_default", "--limit-gb", "0.25")
        listed = {row["cache_salt"]: row["limit_gb"] for row in self.show("quota", "list")["quotas"]}
        self.check("quota list: both", listed == {SALT: 0.5, "_default": 0.25}, listed)
        self.show("quota", "set", SALT, "--limit-gb", "1")
        self.check("quota set: again", self.show("quota", "get", SALT)["limit_gb"] == 1.0)
        for limit in ("-1", "nan", "inf"):
            status, _ = self.run("quota", "set", SALT, f"--limit-gb={limit}")
            self.check(f"quota set: {limit} is refused", status == 1, status)
        self.check("quota set: a refused one changes nothing",
                   self.show("quota", "get", SALT)["limit_gb"] == 1.0)
        for salt in (SALT, "_default"):
            self.check(f"quota delete: {salt}", self.show("quota", "delete", salt)
                       == {"cache_salt": salt, "status": "removed"})
        self.check("quota delete: again", self.show("quota", "delete", SALT)["status"] == "not_found")
        gone = self.show("quota", "get", SALT)
        self.check("quota get: none", (gone["limit_gb"], gone["exists"]) == (0.0, False), gone)
        self.check("quota list: none", self.show("quota", "list") == {"info": "No quotas configured"})

    def close(self):
        self.client.unregister(self.instance)
        self.client.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("http", metavar="HTTP_HOST:PORT")
    parser.add_argument("mp", metavar="MP_HOST:PORT")
    parser.add_argument("--chunk-size", type=int, default=256)
    parser.add_argument("--pool-gb", type=float, default=1.0)
    arguments = parser.parse_args()
    rows = Checklist()
    check = CliCheck(f"http://{arguments.http}", f"tcp://{arguments.mp}", arguments.chunk_size,
                     arguments.pool_gb, rows)
    for step in (check.ping, check.describe, check.registrations, check.clear, check.quota, check.close):
        rows.step(step)
    return rows.status()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # LMCache's clients leave threads that a normal exit would wait for.
    os._exit(status)
