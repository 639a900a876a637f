#!/usr/bin/env python3
"""Loads an MP server with LMCache's own request clients, a process each, and prints one JSON object as mp_load does.

Needs an interpreter that has LMCache. The exit code is 3 when an answer was wrong.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
import uuid

os.environ |= {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "LMCACHE_LOG_LEVEL": "CRITICAL"}

import torch
import zmq
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey, RegisterEngineDrivenContextPayload
from lmcache.v1.multiprocess.transfer_context.base import EngineDrivenContextMetadata, create_engine_driven_context
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory

TIMEOUT_S = 60.0
LAYERS = 32
MAX_RUN_BYTES = 512 << 20
WARM_UP_S = 0.5


class Client:
    """One client: `before`, `timed` and `after` are a round, of which `timed` is measured."""

    def __init__(self, arguments, index):
        self.op, self.echo = arguments.op, arguments.echo
        self.rpc = RequestClientFactory.create(f"tcp://127.0.0.1:{arguments.port}", context=zmq.Context())
        self.bad = 0
        self.model = f"bench-{uuid.uuid4().hex[:8]}"
        chunk = 256 if self.echo else self.ask("get_chunk_size")
        self.shape = torch.Size([2, LAYERS, chunk, arguments.size // (4 * LAYERS * chunk)])
        self.keys = max(1, min(8, MAX_RUN_BYTES // (arguments.size * arguments.clients)))
        rng = random.Random(self.model)
        length = arguments.tokens if self.op == "miss" else chunk
        self.prompts = [tuple(rng.randrange(2**31) for _ in range(length)) for _ in range(self.keys)]
        self.moves_chunks = self.op in ("store", "retrieve")
        if self.op != "ping" and not self.echo:
            self.register(arguments.transfer)

    def ask(self, operation, *arguments):
        return getattr(self.rpc, operation)(*arguments).result(TIMEOUT_S)

    def register(self, transfer):
        self.instance = uuid.uuid4().int >> 65
        layers, chunk, hidden = self.shape[1:]
        reply = self.ask("register_kv_cache_engine_driven_context", RegisterEngineDrivenContextPayload(
            self.instance, self.model, 1, 16, layers, hidden, "float16", False, chunk))
        if transfer and (transfer == "shm") != bool(reply.shm_name):
            raise SystemExit("the server does not transfer chunks in that way")
        metadata = EngineDrivenContextMetadata(MemoryLayoutDesc([self.shape], [torch.float16]), 16, False)
        self.context = create_engine_driven_context(
            metadata, self.rpc, TIMEOUT_S, reply.shm_name, reply.pool_size, use_pickle=not reply.shm_name)
        self.source = torch.randn(self.shape).to(torch.float16)
        self.target = torch.empty(self.shape, dtype=torch.float16)
        if self.op in ("hit", "retrieve"):
            for index in range(self.keys):
                self.store(index)

    def key(self, index, worker_id=None):
        tokens = self.prompts[index]
        return IPCCacheServerKey(
            model_name=self.model, world_size=1, worker_id=worker_id, token_ids=tokens, start=0,
            end=len(tokens), request_id=self.request(index), num_kv_readers=1)

    def request(self, index):
        return f"{self.model}-{index}"

    def lookup(self, index, expected):
        self.ask("lookup", self.key(index), 1)
        found = self.ask("wait_prefetch_status", self.request(index), TIMEOUT_S)
        self.bad += not self.echo and found != expected

    def store(self, index):
        key = self.key(index, 0)
        prepared = self.context.prepare_store(key, self.instance)
        chunks = [self.source]
        if prepared is not None:
            chunks, _ = prepared
            for chunk in chunks:
                chunk.copy_(self.source)
        self.bad += not chunks or not self.context.commit_store(key, self.instance, chunks)

    def retrieve(self, index):
        key = self.key(index, 0)
        chunks = self.context.prepare_retrieve(key, self.instance)
        for chunk in chunks or []:
            self.target.copy_(chunk)
        self.context.commit_retrieve(key, self.instance)
        self.bad += not chunks

    def before(self, index):
        if self.op == "retrieve":
            self.lookup(index, 1)
        elif self.op == "store" and index == 0:
            self.ask("clear", False)  # a chunk that is in the cache would not be stored again

    def timed(self, index):
        if self.op == "ping":
            self.ask("ping", None)
        elif self.op == "miss":
            self.lookup(index, 0)
            self.ask("end_session", self.request(index))
        elif self.op == "hit":
            self.lookup(index, 1)
            self.ask("free_lookup_locks", self.key(index), 1)
            self.ask("end_session", self.request(index))
        else:
            getattr(self, self.op)(index)

    def after(self, index):
        if self.moves_chunks:
            self.ask("end_session", self.request(index))
        if self.op == "retrieve" and self.bad == 0:
            self.bad += not torch.equal(self.target[:, 0, 0], self.source[:, 0, 0])

    def close(self):
        if self.op != "ping" and not self.echo:
            self.ask("unregister_kv_cache_engine_driven_context", self.instance)


def run_client(arguments, index, ready, results):
    torch.set_num_threads(1)
    client = Client(arguments, index)
    ready.wait()
    start = time.perf_counter() + WARM_UP_S
    latencies, number = [], 0
    while True:
        position = number % client.keys
        client.before(position)
        before = time.perf_counter()
        client.timed(position)
        now = time.perf_counter()
        client.after(position)
        number += 1
        if now >= start + arguments.secs:
            break
        if now >= start:
            latencies.append(now - before)
    results.put((latencies, client.bad))
    ready.wait()  # unregistering is no part of anybody's measurement
    client.close()
    results.close()
    results.join_thread()
    # LMCache's clients leave threads that a normal exit would wait for.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--op", required=True, choices=["ping", "miss", "hit", "store", "retrieve"])
    parser.add_argument("--transfer", choices=["shm", "inline"])
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--size", type=int, default=32 << 20)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--secs", type=float, default=1.0)
    parser.add_argument("--echo", action="store_true")
    arguments = parser.parse_args()
    # Forked after the slow imports, and before any of them has a thread or a socket.
    context = multiprocessing.get_context("fork")
    ready, results = context.Barrier(arguments.clients), context.Queue()
    clients = [context.Process(target=run_client, args=(arguments, index, ready, results))
               for index in range(arguments.clients)]
    for client in clients:
        client.start()
    outcomes = []
    while len(outcomes) < arguments.clients:
        try:
            outcomes.append(results.get(timeout=1.0))
        except Exception:
            if any(client.exitcode not in (None, 0) for client in clients):
                for client in clients:
                    client.kill()
                raise SystemExit("a client failed") from None
    for client in clients:
        client.join(30)
    latencies = sorted(latency for times, _ in outcomes for latency in times)
    bad = sum(count for _, count in outcomes)
    rate = sum(len(times) / sum(times) for times, _ in outcomes if times)
    moves_chunks = arguments.op in ("store", "retrieve")

    def quantile(share):
        return round(latencies[min(len(latencies) - 1, int(share * len(latencies)))] * 1e6, 2) if latencies else 0

    print(json.dumps({
        "chunk_bytes": arguments.size, "tokens": arguments.tokens, "clients": arguments.clients,
        "ops": len(latencies), "ops_per_s": round(rate, 1),
        "mb_per_s": round(rate * arguments.size / 1e6, 1) if moves_chunks else None,
        "p50_us": quantile(0.5), "p99_us": quantile(0.99), "client_cpu_cores": None,
        "server_cpu_cores": None, "bad": bad}))
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
