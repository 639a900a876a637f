#!/usr/bin/env python3
"""Drives an MP server with LMCache 0.5.6's own scheduler and worker adapters and checks every byte that comes back.

  mp_client_check.py tcp://HOST:PORT --expect shm|pickle [--dtype NAME...] [--only conversation|semantics|errors]

Three parts: the adapters' conversation (per dtype), single operations through LMCache's request client, and
wrong or hostile messages, each of which must be answered within a second. Each row is PASS or FAIL; the exit
status is the number of FAILs, at most 100. LMCache's own server fails the rows whose names begin with "robust:";
kvasird must pass all.
"""

import argparse
import os
import random
import stat
import sys
import uuid

import mp_engine
import torch
from checklist import Checklist
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory
from mp_engine import TIMEOUT_S, Engine, own_context, segment_path
from mp_error_checks import ErrorChecks
from mp_semantics_checks import SemanticsChecks

DTYPES = ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"]
PARTS = ["conversation", "semantics", "errors"]


class Conversation:
    """What vLLM's two adapters do with a server, in the order in which they do it."""

    def __init__(self, url, dtype, expect, rows):
        self.rows = rows
        self.expect = expect
        self.dtype = dtype
        self.run = uuid.uuid4().hex[:8]
        self.model = f"check/{dtype}-{self.run}"
        self.random = random.Random(self.run)
        self.client = RequestClientFactory.create(url, context=own_context())
        self.engine = Engine(url, self.model, getattr(torch, dtype))
        self.pair = Engine(url, f"{self.model}-pair", getattr(torch, dtype), world_size=2, chunks=4)
        self.chunk = self.engine.chunk
        self.worker = self.engine.ranks[0]
        self.tokens = self.make_tokens(4 * self.chunk + 37)

    def check(self, name, ok, detail=""):
        # fp8 cannot be unpickled by the Python server: its commits go unanswered.
        robust = "robust: " if self.expect == "pickle" and "float8" in self.dtype else ""
        self.rows.check(f"{robust}{self.dtype}: {name}", ok, detail)

    def make_tokens(self, count):
        return [self.random.randrange(2**31) for _ in range(count)]

    def request(self, name):
        return f"{name}-{self.run}"

    def lookup(self, name, tokens, **options):
        """Tokens found; the request is finished at once, so its locks are only those of a lookup."""
        found = self.engine.lookup(self.request(name), tokens, **options)
        self.engine.finish(self.request(name))
        return found

    def all(self):
        for step in (
            self.adapters_start, self.nothing_before_registration, self.register, self.store,
            self.retrieve_all, self.retrieve_part, self.skip_tokens, self.reserve_last_token,
            self.isolation, self.two_ranks, self.clear, self.unregister,
        ):
            self.rows.step(step)
        self.client.close()

    def adapters_start(self):
        experimental = self.worker.adapter.experimental
        self.check("get_chunk_size is that of both adapters",
                   self.chunk == self.worker.adapter.lmcache_tokens_per_chunk, self.chunk)
        self.check("get_experimental is a set of strings",
                   isinstance(experimental, set) and all(isinstance(name, str) for name in experimental))
        self.check("noop is OK", self.client.noop().result(TIMEOUT_S) == "OK")
        self.check("ping without an instance", bool(self.client.ping(None).result(TIMEOUT_S)))
        self.check("ping with an unknown instance", bool(self.client.ping(123456).result(TIMEOUT_S)))

    def nothing_before_registration(self):
        self.check("a lookup before any registration finds nothing", self.lookup("early", self.tokens) == 0)

    def register(self):
        transport = self.worker.register()
        self.check(f"registered for {self.expect}", transport == self.expect, transport)
        shape = [list(shape) for shape in self.worker.context.layout_desc.shapes]
        self.check("layout of a chunk", shape == [
            [2, mp_engine.LAYERS, self.chunk, mp_engine.HEADS * mp_engine.HEAD_SIZE]], shape)
        if transport == "shm":
            info = segment_path(self.worker.context._shm_name).stat()
            self.check("the segment's name begins as clients expect",
                       self.worker.context._shm_name.lstrip("/").startswith("lmcache_l1_pool_"))
            self.check("the segment is as large as the pool", info.st_size >= self.worker.context._pool_size)
            self.check("the segment is for its user only",
                       stat.S_IMODE(info.st_mode) == 0o600 and info.st_uid == os.getuid())
        self.check("a lookup after it finds nothing", self.lookup("miss", self.tokens) == 0)

    def store(self):
        store, blocks, chunk = self.worker.store, self.engine.blocks, self.chunk
        request = self.request("store")
        self.check("store chunks 0 and 1", store(request, self.tokens, 0, 2 * chunk, blocks(0, 2)) is True)
        self.check("store chunks 2 and 3 of the same request",
                   store(request, self.tokens, 2 * chunk, 4 * chunk, blocks(2, 2)) is True)
        self.check("store all four again", store(request, self.tokens, 0, 4 * chunk, blocks(0, 4)) is True)
        self.engine.finish(request)
        self.source = self.worker.block_bytes(blocks(0, 4))

    def expected(self, first_chunk, chunks):
        """The bytes of those chunks as they were stored."""
        first, count = first_chunk * self.engine.blocks_per_chunk, chunks * self.engine.blocks_per_chunk
        return {name: kv[:, first : first + count] for name, kv in self.source.items()}

    def retrieve_all(self):
        target = self.engine.blocks(4, 4)
        found = self.engine.lookup(self.request("all"), self.tokens)
        self.check("a lookup finds all four chunks", found == 4 * self.chunk, found)
        self.check("retrieve them",
                   self.worker.retrieve(self.request("all"), self.tokens, 0, 4 * self.chunk, target) is True)
        self.check("bytes are equal", self.worker.blocks_equal(target, self.expected(0, 4)))
        self.engine.finish(self.request("all"))
        self.check("the prompt cut below a chunk finds nothing",
                   self.lookup("short", self.tokens[: self.chunk - 1]) == 0)

    def retrieve_part(self):
        """Three chunks in common; the engine has the first already and frees its lock."""
        request, target = self.request("part"), self.engine.blocks(8, 2)
        tokens = self.tokens[: 3 * self.chunk] + self.make_tokens(2 * self.chunk)
        self.check("a prompt with three common chunks finds three",
                   self.engine.lookup(request, tokens) == 3 * self.chunk)
        self.engine.scheduler.free_lookup_locks(list(tokens), 0, self.chunk, request)
        self.check("retrieve chunks 1 and 2",
                   self.worker.retrieve(request, tokens, self.chunk, 3 * self.chunk, target) is True)
        self.check("their bytes are equal", self.worker.blocks_equal(target, self.expected(1, 2)))
        self.engine.finish(request)

    def skip_tokens(self):
        """A retrieve may leave leading blocks alone that the engine shares with another request."""
        request, target = self.request("skip"), self.engine.blocks(10, 2)
        before = self.worker.block_bytes(target[:1])
        self.engine.lookup(request, self.tokens[: 2 * self.chunk])
        ok = self.worker.retrieve(
            request, self.tokens, 0, 2 * self.chunk, target, skip=mp_engine.BLOCK_TOKENS)
        rest = {name: kv[:, 1:] for name, kv in self.expected(0, 2).items()}
        self.check("retrieve without the first block", ok is True)
        self.check("the first block is untouched, the others equal",
                   self.worker.blocks_equal(target[:1], before) and self.worker.blocks_equal(target[1:], rest))
        self.engine.finish(request)

    def reserve_last_token(self):
        exact = self.tokens[: 2 * self.chunk]
        self.check("with the last token reserved a full hit is a chunk shorter",
                   self.lookup("reserve", exact, reserve_last_token=True) == self.chunk)

    def isolation(self):
        self.check("another salt finds nothing", self.lookup("salt", self.tokens, salt="tenant-a") == 0)
        stored = self.worker.store(
            self.request("salted"), self.tokens, 0, self.chunk, self.engine.blocks(1, 1), salt="tenant-a")
        self.check("store one chunk with a salt", stored is True)
        request, target = self.request("salted-hit"), self.engine.blocks(12, 1)
        self.check("the salted lookup finds it",
                   self.engine.lookup(request, self.tokens, salt="tenant-a") == self.chunk)
        self.check("retrieve it with the salt", self.worker.retrieve(
            request, self.tokens, 0, self.chunk, target, salt="tenant-a") is True)
        self.check("the bytes are the salted ones", self.worker.blocks_equal(target, self.expected(1, 1)))
        self.engine.finish(request)
        request = self.request("unsalted")
        self.engine.lookup(request, self.tokens[: self.chunk])
        self.worker.retrieve(request, self.tokens, 0, self.chunk, target)
        self.check("without it the bytes are the others", self.worker.blocks_equal(target, self.expected(0, 1)))
        self.engine.finish(request)

    def two_ranks(self):
        pair, tokens = self.pair, self.make_tokens(2 * self.chunk)
        first, second = pair.ranks
        self.check("both ranks register",
                   [rank.register() for rank in pair.ranks] == [self.expect, self.expect])
        source, target = pair.blocks(0, 2), pair.blocks(2, 2)
        expected = [rank.block_bytes(source) for rank in pair.ranks]
        request = self.request("pair")
        self.check("rank 0 stores", first.store(request, tokens, 0, len(tokens), source) is True)
        self.check("one of two ranks is no hit", pair.lookup(self.request("half"), tokens) == 0)
        pair.finish(self.request("half"))
        self.check("rank 1 stores", second.store(request, tokens, 0, len(tokens), source) is True)
        pair.finish(request)
        request = self.request("pair-hit")
        self.check("both ranks are a hit", pair.lookup(request, tokens) == len(tokens))
        self.check("each rank retrieves", all(
            rank.retrieve(request, tokens, 0, len(tokens), target) is True for rank in pair.ranks))
        self.check("each rank got its own bytes", all(
            rank.blocks_equal(target, bytes_) for rank, bytes_ in zip(pair.ranks, expected)))
        pair.finish(request)
        pair.shut_down()

    def clear(self):
        # The lookups of this conversation that nobody retrieved still lock chunks.
        self.check("reset_cache", self.engine.scheduler.reset_cache() is True)
        self.check("a forced clear", self.client.clear(True).result(TIMEOUT_S) is None)
        self.check("a lookup after it finds nothing", self.lookup("cleared", self.tokens) == 0)
        self.check("store again", self.worker.store(
            self.request("again"), self.tokens, 0, self.chunk, self.engine.blocks(0, 1)) is True)
        self.check("and find it", self.lookup("again-hit", self.tokens) == self.chunk)

    def unregister(self):
        instance = self.worker.instance_id
        self.worker.adapter.shutdown()
        self.check("unregister twice", self.client.unregister_kv_cache_engine_driven_context(
            instance).result(TIMEOUT_S) is None)
        self.check("a lookup after it finds nothing", self.lookup("late", self.tokens) == 0)
        self.check("the server is alive", bool(self.client.ping(None).result(TIMEOUT_S)))
        self.engine.scheduler.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--expect", required=True, choices=["shm", "pickle"], help="how payload must travel")
    parser.add_argument("--dtype", nargs="*", default=DTYPES, choices=DTYPES)
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    arguments = parser.parse_args()
    rows = Checklist()
    if "conversation" in arguments.only:
        for dtype in arguments.dtype:
            Conversation(arguments.url, dtype, arguments.expect, rows).all()
    if "semantics" in arguments.only:
        SemanticsChecks(arguments.url, arguments.expect, rows).all()
    if "errors" in arguments.only:
        ErrorChecks(arguments.url, arguments.expect, rows).all()
    return rows.status()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # LMCache's clients leave threads that a normal exit would wait for.
    os._exit(status)
