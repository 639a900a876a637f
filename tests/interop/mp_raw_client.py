"""Single MP operations through LMCache's request client, with the payload moved by hand."""

import itertools
import mmap
import pickle
import random
import uuid

import torch
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory
from mp_engine import HEAD_SIZE, HEADS, LAYERS, TIMEOUT_S, make_key, own_context, registration, segment_path


class RawClient:
    """One request client and one model; each instance it registers is a worker of that model."""

    def __init__(self, url, model):
        self.rpc = RequestClientFactory.create(url, context=own_context())
        self.model = f"{model}-{uuid.uuid4().hex[:8]}"
        self.chunk = self.ask("get_chunk_size")
        self.random = random.Random(self.model)
        self.request_numbers = itertools.count()
        self.segment = None

    def ask(self, operation, *arguments):
        return getattr(self.rpc, operation)(*arguments).result(TIMEOUT_S)

    def close(self):
        self.rpc.close()

    def tokens(self, chunks=1):
        return [self.random.randrange(2**31) for _ in range(chunks * self.chunk)]

    def request_id(self):
        return f"{self.model}-{next(self.request_numbers)}"

    def register(self, **options):
        """Registers a worker. Returns its instance id; maps the segment, each time, if the server offers one."""
        payload = registration(self.model, self.chunk, **options)
        reply = self.ask("register_kv_cache_engine_driven_context", payload)
        if reply.shm_name:
            with open(segment_path(reply.shm_name), "r+b") as file:
                self.segment = mmap.mmap(file.fileno(), 0)
        return payload.instance_id

    def unregister(self, instance):
        return self.ask("unregister_kv_cache_engine_driven_context", instance)

    def key(self, tokens, request_id, worker_id=None, **options):
        return make_key(self.model, tokens, 0, len(tokens), request_id, worker_id, **options)

    def worker_key(self, tokens, request_id, **options):
        return self.key(tokens, request_id, worker_id=0, **options)

    def lookup(self, tokens, request_id, **options):
        """Chunks found, and locked for a retrieve."""
        self.ask("lookup", self.key(tokens, request_id, **options), 1)
        return self.ask("wait_prefetch_status", request_id, TIMEOUT_S)

    def probe(self, tokens, **options):
        """Chunks found, with the locks of the lookup given back."""
        request_id = self.request_id()
        found = self.lookup(tokens, request_id, **options)
        self.free(tokens, request_id, **options)
        self.ask("end_session", request_id)
        return found

    def free(self, tokens, request_id, **options):
        return self.ask("free_lookup_locks", self.key(tokens, request_id, **options), 1)

    def payload(self, number):
        """A chunk of one's own: every byte depends on `number`."""
        values = torch.arange(2 * LAYERS * self.chunk * HEADS * HEAD_SIZE) % 251 + number
        return values.to(torch.float16).view(2, LAYERS, self.chunk, HEADS * HEAD_SIZE)

    def pickled(self, tensors):
        return pickle.dumps(tensors)

    def write(self, slot, tensor):
        data = tensor.numpy().tobytes()
        assert len(data) == slot["length"], (len(data), slot)
        self.segment[slot["offset"] : slot["offset"] + slot["length"]] = data

    def read(self, slot):
        data = bytearray(self.segment[slot["offset"] : slot["offset"] + slot["length"]])
        return torch.frombuffer(data, dtype=torch.float16).view(slot["shape"])

    def store(self, tokens, instance, payloads, request_id=None, **options):
        """prepare_store, the bytes, commit_store. Returns what commit_store answered."""
        key = self.worker_key(tokens, request_id or self.request_id(), **options)
        context = self.ask("prepare_store", key, instance).context
        if "slots" not in context:
            return self.ask("commit_store", key, instance, self.pickled(payloads))
        for slot, index in zip(context["slots"], context["chunk_indices"], strict=True):
            self.write(slot, payloads[index])
        return self.ask("commit_store", key, instance, b"")

    def retrieve(self, tokens, instance, request_id, **options):
        """prepare_retrieve, the bytes, commit_retrieve. Returns the chunks, or None if it was refused."""
        key = self.worker_key(tokens, request_id, **options)
        reply = self.ask("prepare_retrieve", key, instance)
        chunks = None
        if reply.success and reply.data:
            chunks = pickle.loads(reply.data)
        elif reply.success:
            chunks = [self.read(slot) for slot in reply.context["slots"]]
        self.ask("commit_retrieve", key, instance)
        return chunks


def equal(chunks, expected):
    return chunks is not None and len(chunks) == len(expected) and all(
        torch.equal(got, want) for got, want in zip(chunks, expected))
