"""Wrong and hostile messages: each is answered within a second, does nothing, and harms nobody else.

An answer is a result, or a reply whose operation is another string than the request's: LMCache's client raises
ValueError for that at once. Silence would make it wait for five minutes.
"""

import os
import pickle
import tempfile
from pathlib import Path

import msgspec
import torch
import zmq
from mp_engine import LAYERS, HEADS, HEAD_SIZE, make_key, registration
from mp_raw_client import RawClient

ANSWER_TIMEOUT_S = 1.0
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode
OPERATIONS = {
    1: "register_kv_cache", 2: "unregister_kv_cache", 3: "register_q_cache", 4: "unregister_q_cache",
    5: "store_q", 6: "store", 7: "retrieve", 8: "lookup", 9: "query_prefetch_status",
    10: "wait_prefetch_status", 12: "free_lookup_locks", 13: "end_session",
    14: "register_kv_cache_engine_driven_context", 15: "unregister_kv_cache_engine_driven_context",
    16: "prepare_store", 17: "commit_store", 18: "prepare_retrieve", 19: "commit_retrieve", 20: "clear",
    21: "get_chunk_size", 22: "ping", 23: "report_block_allocation", 24: "noop", 25: "cb_register_rope",
    26: "cb_unregister_rope", 27: "cb_retrieve_pre_computed", 28: "cb_unified_lookup",
    29: "p2p_lookup_and_lock", 30: "p2p_query_lookup_results", 31: "p2p_unlock_objects",
    32: "get_experimental", 33: "cb_protocol_handshake",
}
NOT_SERVED = [1, 2, 3, 4, 5, 6, 7, 11, *range(25, 32), 33, "server_module_call", "cb_reorder_plan"]
WITHOUT_ARGUMENTS = ["get_chunk_size", "get_experimental", "noop"]
LOOKUP, PREPARE_STORE, COMMIT_STORE, PING = 8, 16, 17, 22


class Hostile:
    """Unpickled, this creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class ErrorChecks:
    def __init__(self, url, expect, rows):
        self.expect = expect
        self.check = rows.check
        self.step = rows.step
        self.client = RawClient(url, "errors")
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(url)
        self.sent = 0

    def all(self):
        self.instance = self.client.register()
        for step in (
            self.wire_freedom, self.instances, self.keys, self.ranges, self.registrations,
            self.operations, self.arguments, self.inline_payloads, self.frames, self.nothing_remains,
        ):
            self.step(step)
        self.client.close()
        self.socket.close()

    def uid(self):
        self.sent += 1
        return pack(self.sent)

    def exchange(self, *frames, uid=None):
        """Sends [uid][frames...]. Returns the reply's frames after the uid, or None."""
        uid = uid or self.uid()
        self.socket.send_multipart([uid, *frames])
        while self.socket.poll(ANSWER_TIMEOUT_S * 1000):
            reply = self.socket.recv_multipart()
            if reply[0] == uid:  # else: late, from an earlier request
                return reply[1:]
        return None

    def answered(self, name, reply, operation):
        """A result of the operation, or the string that makes a client fail at once."""
        ok = reply is not None and len(reply) in (1, 2)
        if ok and reply[0] != operation:
            ok = len(reply) == 1 and isinstance(unpack(reply[0]), str)
        self.check(f"robust: answered: {name}", ok, "silence" if reply is None else [f.hex()[:60] for f in reply])

    def refused(self, name, operation, *arguments, result=lambda reply: False):
        """Answered with an error, or with a result that says that nothing was done."""
        future = getattr(self.client.rpc, operation)(*arguments)
        try:
            reply = future.result(ANSWER_TIMEOUT_S)
        except TimeoutError:
            self.check(f"robust: refused: {name}", False, "silence")
        except ValueError as error:
            self.check(f"robust: refused: {name}", True, str(error)[:60])
        else:
            self.check(f"robust: refused: {name}", result(reply), reply)

    def alive(self, after):
        self.check(f"alive after {after}", self.exchange(pack(PING), pack(None)) is not None)

    def key(self, **changed):
        tokens = changed.pop("token_ids", None) or self.client.tokens()
        fields = {
            "model_name": self.client.model, "world_size": 1, "worker_id": None, "token_ids": tokens,
            "start": 0, "end": len(tokens), "request_id": self.client.request_id(), "cache_salt": "",
            "request_configs": None, "num_kv_readers": 1,
        }
        return fields | changed

    def wire_freedom(self):
        """What looks odd and is right."""
        uid = b"\xff\xfeabc"
        self.check("a uid of any bytes is echoed", self.exchange(pack(PING), pack(None), uid=uid) is not None)
        for operation in (PING, "ping"):
            reply = self.exchange(pack(operation), pack(None))
            self.check(f"operation {operation!r} is echoed as it was sent",
                       reply is not None and reply[0] == pack(operation))
        wide = b"\xd1\x00\x16"  # 22 as int16
        reply = self.exchange(wide, pack(None))
        self.check("an operation in a wider integer is echoed as it was sent",
                   reply is not None and reply[0] == wide)
        for name, fields in {
            "an unknown field": self.key() | {"zzz": [{"a": 1}]},
            "its fields in another order": dict(reversed(list(self.key().items()))),
            "its optional fields left out": {name: value for name, value in self.key().items()
                                             if name not in ("cache_salt", "request_configs")},
            "request_configs": self.key(request_configs={"a": [1, 2.5, None, {"b": b"c"}]}),
        }.items():
            reply = self.exchange(pack(LOOKUP), pack(fields), pack(1))
            self.check(f"a key with {name}", reply == [pack(LOOKUP)], reply)
        for _ in range(200):
            self.socket.send_multipart([self.uid(), pack(PING), pack(None)])
        answers = set()
        while len(answers) < 200 and self.socket.poll(ANSWER_TIMEOUT_S * 1000):
            answers.add(self.socket.recv_multipart()[0])
        self.check("200 requests in flight are all answered", len(answers) == 200, len(answers))

    def instances(self):
        key = self.client.worker_key(self.client.tokens(), self.client.request_id())
        no_slots = lambda reply: not reply.context.get("slots")
        self.refused("prepare_store, unregistered instance", "prepare_store", key, 999, result=no_slots)
        self.refused("commit_store, unregistered instance", "commit_store", key, 999, b"",
                     result=lambda reply: reply is False)
        self.refused("prepare_retrieve, unregistered instance", "prepare_retrieve", key, 999,
                     result=lambda reply: reply.success is False)
        self.refused("commit_retrieve, unregistered instance", "commit_retrieve", key, 999,
                     result=lambda reply: reply in (True, False))  # nothing can be released

    def keys(self):
        model, tokens = self.client.model, self.client.tokens()
        for readers in (0, -1, 129, 2**40):
            request_id = self.client.request_id()
            self.refused(f"lookup, num_kv_readers {readers}", "lookup",
                         self.client.key(tokens, request_id, readers=readers), 1,
                         result=lambda reply: reply is None)
            self.check(f"robust: no hit with num_kv_readers {readers}",
                       self.client.ask("query_prefetch_status", request_id) == 0)
        scheduler_key = self.client.key(tokens, self.client.request_id())
        self.refused("prepare_store, worker_id nil", "prepare_store", scheduler_key, self.instance,
                     result=lambda reply: not reply.context.get("slots"))
        self.refused("prepare_retrieve, worker_id nil", "prepare_retrieve", scheduler_key, self.instance,
                     result=lambda reply: reply.success is False)
        changes = {
            "salt a/b": {"cache_salt": "a/b"}, "salt a@b": {"cache_salt": "a@b"},
            "salt with a backslash": {"cache_salt": "a\\b"}, "salt with NUL": {"cache_salt": "a\0b"},
            "salt of 129 characters": {"cache_salt": "s" * 129}, "model with @": {"model_name": model + "@"},
            "token -1": {"token_ids": [-1] * len(tokens)}, "token 2^32": {"token_ids": [2**32] * len(tokens)},
            "token 2^64-1": {"token_ids": [2**64 - 1] * len(tokens)}, "token 1.5": {"token_ids": [1.5] * len(tokens)},
            "tokens nil": {"token_ids": None}, "tokens a string": {"token_ids": "abc"},
            "world_size 0": {"world_size": 0}, "world_size -1": {"world_size": -1},
            "world_size 2^40": {"world_size": 2**40}, "end -1": {"end": -1}, "end 2^63": {"end": 2**63},
            "model nil": {"model_name": None}, "request_id 5": {"request_id": 5},
        }
        for name, change in changes.items():
            self.answered(f"lookup, {name}", self.exchange(pack(LOOKUP), pack(self.key() | change), pack(1)),
                          pack(LOOKUP))
            worker_key = self.key(worker_id=0) | change
            self.answered(f"prepare_store, {name}", self.exchange(
                pack(PREPARE_STORE), pack(worker_key), pack(self.instance)), pack(PREPARE_STORE))
        for missing in ("model_name", "token_ids", "request_id"):
            fields = {name: value for name, value in self.key().items() if name != missing}
            self.answered(f"lookup, no {missing}", self.exchange(pack(LOOKUP), pack(fields), pack(1)), pack(LOOKUP))
        self.alive("wrong keys")

    def ranges(self):
        chunk, tokens = self.client.chunk, self.client.tokens(2)
        for start, end in ((1, chunk), (0, chunk + 1), (0, 3 * chunk), (chunk, 0), (-chunk, chunk), (chunk, 2**40)):
            key = make_key(self.client.model, tokens, start, end, self.client.request_id(), 0)
            self.refused(f"prepare_store of [{start}, {end})", "prepare_store", key, self.instance,
                         result=lambda reply: not reply.context.get("slots"))
            self.refused(f"prepare_retrieve of [{start}, {end})", "prepare_retrieve", key, self.instance,
                         result=lambda reply: reply.success is False)

    def registrations(self):
        model, chunk = f"{self.client.model}-refused", self.client.chunk
        for change in (
            {"dtype_str": "float99"}, {"dtype_str": ""}, {"dtype_str": "nn"}, {"num_physical_slots": 0},
            {"num_physical_slots": -1}, {"num_layers": 0}, {"num_layers": 2**62}, {"hidden_dim_size": -1},
            {"hidden_dim_size": 2**62}, {"world_size": 0},
        ):
            payload = registration(model, chunk, **change)
            name = ", ".join(f"{field} {value!r}" for field, value in change.items())
            self.refused(f"register, {name}", "register_kv_cache_engine_driven_context", payload)

    def operations(self):
        for operation in NOT_SERVED:
            name = OPERATIONS.get(operation, operation)
            self.answered(f"operation {name}, not served", self.exchange(pack(operation)), pack(operation))
        for operation in (0, 34, 250, -1, 2**63, "nosuch", "", "x" * 200):
            self.answered(f"unknown operation {str(operation)[:20]!r}", self.exchange(pack(operation)),
                          pack(operation))
        for name, frame in {"nil": b"\xc0", "empty": b"", "never used": b"\xc1", "cut off": b"\xa9ab",
                            "an array": b"\x91\x16", "nested": b"\x91" * 5000}.items():
            self.exchange(frame)  # may be dropped: there is no operation to answer
            self.alive(f"an operation frame that is {name}")

    def arguments(self):
        for operation in OPERATIONS.values():
            if operation not in WITHOUT_ARGUMENTS:
                self.answered(f"{operation} without arguments", self.exchange(pack(operation)), pack(operation))
            self.answered(f"{operation} with nine arguments",
                          self.exchange(pack(operation), *[pack(None)] * 9), pack(operation))
        payloads = {
            "never used": b"\xc1", "empty": b"", "nil": b"\xc0", "cut off": pack(self.key())[:-9],
            "two values": pack(self.key()) + b"\x01", "nested": b"\x91" * 5000,
            "an array of 2^32-1": b"\xdd\xff\xff\xff\xff", "a map of 2^32-1": b"\xdf\xff\xff\xff\xff",
            "a string of 2^32-1": b"\xdb\xff\xff\xff\xff", "not UTF-8": b"\x81\xa2\xff\xfe\x01",
            "an integer key": b"\x81\x01\x01", "an array": b"\x90", "a long string": pack("x" * 1_000_000),
        }
        for name, payload in payloads.items():
            self.answered(f"lookup, key {name}", self.exchange(pack(LOOKUP), payload, pack(1)), pack(LOOKUP))
            self.answered(f"prepare_store, key {name}",
                          self.exchange(pack(PREPARE_STORE), payload, pack(self.instance)), pack(PREPARE_STORE))
            self.answered(f"register, payload {name}", self.exchange(pack(14), payload), pack(14))
            self.answered(f"ping, instance {name}", self.exchange(pack(PING), payload), pack(PING))
        self.alive("wrong arguments")

    def frames(self):
        """From the nested operation on LMCache's own server answers nobody any more."""
        for name, frames in {
            "ten empty frames": [b""] * 10, "300 frames": [pack(0), pack(PING), *[b"\xc0"] * 300],
            "a nested operation": [pack(0), b"\x91" * 5000], "one frame": [b"\x00"], "an empty frame": [b""],
            "a megabyte": [b"\x91" * 2**20],
        }.items():
            self.socket.send_multipart(frames)
            self.check(f"robust: alive after {name}", self.exchange(pack(PING), pack(None)) is not None)

    def inline_payloads(self):
        """Every commit is answered and makes nothing visible; nothing is executed."""
        shape = (2, LAYERS, self.client.chunk, HEADS * HEAD_SIZE)
        good = pickle.dumps([torch.ones(shape, dtype=torch.float16)])
        cut = pickle.dumps([torch.ones(2, dtype=torch.float16)])
        with tempfile.TemporaryDirectory() as directory:
            trap = Path(directory) / "executed"
            for name, data in {
                "garbage": b"\x00\x01garbage", "cut off": good[:-100], "an empty list": pickle.dumps([]),
                "no list": pickle.dumps({"a": 1}), "two tensors for one chunk": pickle.dumps([torch.ones(shape)] * 2),
                "another shape": cut, "another dtype": pickle.dumps([torch.ones(shape, dtype=torch.float32)]),
                "hostile": pickle.dumps([Hostile(trap)]), "only opcodes": b"\x80\x04" + b"]" * 100_000 + b".",
                "a huge claim": b"\x80\x04\x8e" + b"\xff" * 8,
            }.items():
                tokens = self.client.tokens()
                key = msgspec.to_builtins(self.client.worker_key(tokens, self.client.request_id()))
                self.exchange(pack(PREPARE_STORE), pack(key), pack(self.instance))
                reply = self.exchange(pack(COMMIT_STORE), pack(key), pack(self.instance), pack(data))
                self.answered(f"commit_store, data {name}", reply, pack(COMMIT_STORE))
                self.check(f"robust: nothing stored from data {name}", self.client.probe(tokens) == 0)
            self.check("robust: hostile data is not executed", not trap.exists())

    def nothing_remains(self):
        """After all of that the server does what it did before."""
        tokens, payload = self.client.tokens(), self.client.payload(5)
        self.check("robust: a store works", self.client.store(tokens, self.instance, [payload]) is True)
        request_id = self.client.request_id()
        self.check("robust: a lookup works", self.client.lookup(tokens, request_id) == 1)
        chunks = self.client.retrieve(tokens, self.instance, request_id)
        self.check("robust: a retrieve works", chunks is not None and torch.equal(chunks[0], payload))
