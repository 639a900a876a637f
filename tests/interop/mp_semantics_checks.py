"""What single MP operations mean: consume-once results, locks, visibility, ownership."""

import os
import queue
import threading

from lmcache.v1.multiprocess.custom_types import BlockAllocationRecord
from mp_engine import LAYERS, HEADS, HEAD_SIZE, TIMEOUT_S, make_key
from mp_raw_client import RawClient, equal


class SemanticsChecks:
    def __init__(self, url, expect, rows):
        self.expect = expect
        self.check = rows.check
        self.step = rows.step
        self.client = RawClient(url, "semantics")
        self.ask = self.client.ask

    def all(self):
        self.instance = self.client.register()
        self.check(f"semantics: transport is {self.expect}",
                   (self.client.segment is not None) == (self.expect == "shm"))
        steps = [
            self.results_are_handed_out_once, self.retrieve_needs_a_lookup, self.free_gives_locks_back,
            self.several_readers, self.hit_is_a_prefix, self.large_prompts, self.registration_again,
            self.layouts_are_counted, self.clear_spares_locked_chunks, self.dead_worker_leaves_nothing,
            self.reused_request_id, self.overlapping_retrieves, self.strangers_take_no_lock,
            self.double_release, self.end_session_gives_locks_back, self.observations,
        ]
        if self.expect == "shm":
            steps += [self.slots, self.clear_after_commit, self.inline_data_on_a_shm_server]
        else:
            steps.append(self.inline)
        for step in steps:
            self.step(step)
        self.client.unregister(self.instance)
        self.client.close()

    def stored(self, chunks=1):
        """Tokens whose chunks are in the cache, and those chunks."""
        tokens = self.client.tokens(chunks)
        payloads = [self.client.payload(number) for number in range(chunks)]
        if self.client.store(tokens, self.instance, payloads) is not True:
            raise RuntimeError("a store failed")
        return tokens, payloads

    def results_are_handed_out_once(self):
        tokens, _ = self.stored(4)
        request_id = self.client.request_id()
        reply = self.ask("lookup", self.client.key(tokens, request_id), 1)
        self.check("lookup: the acknowledgement has no value", reply is None)
        self.check("wait_prefetch_status: chunks found",
                   self.ask("wait_prefetch_status", request_id, TIMEOUT_S) == 4)
        self.check("query_prefetch_status: 0 once the result was handed out",
                   self.ask("query_prefetch_status", request_id) == 0)
        self.check("lookup: again under the same id", self.client.lookup(tokens, request_id) == 4)
        self.check("query_prefetch_status: 0 for an unknown id",
                   self.ask("query_prefetch_status", self.client.request_id()) == 0)
        self.check("wait_prefetch_status: 0 for an unknown id",
                   self.ask("wait_prefetch_status", self.client.request_id(), 1.0) == 0)
        self.check("end_session: no value", self.ask("end_session", request_id) is None)
        self.check("end_session: no value for an unknown id",
                   self.ask("end_session", self.client.request_id()) is None)

    def retrieve_needs_a_lookup(self):
        tokens, payloads = self.stored(2)
        request_id = self.client.request_id()
        key = self.client.worker_key(tokens, request_id)
        reply = self.ask("prepare_retrieve", key, self.instance)
        self.check("prepare_retrieve: refused without a lookup",
                   (reply.success, reply.data, reply.context) == (False, b"", {}), reply)
        self.check("commit_retrieve: true without prepare",
                   self.ask("commit_retrieve", key, self.instance) is True)
        self.check("lookup: finds them", self.client.lookup(tokens, request_id) == 2)
        self.check("retrieve: the bytes that were stored",
                   equal(self.client.retrieve(tokens, self.instance, request_id), payloads))
        self.check("retrieve: refused when the lock is used up",
                   self.client.retrieve(tokens, self.instance, request_id) is None)

    def free_gives_locks_back(self):
        tokens, _ = self.stored(2)
        request_id = self.client.request_id()
        self.client.lookup(tokens, request_id)
        self.check("free_lookup_locks: no value", self.client.free(tokens, request_id) is None)
        self.check("free_lookup_locks: then a retrieve is refused",
                   self.client.retrieve(tokens, self.instance, request_id) is None)
        self.check("free_lookup_locks: no value without a lookup",
                   self.client.free(tokens, self.client.request_id()) is None)

    def several_readers(self):
        tokens, payloads = self.stored()
        request_id = self.client.request_id()
        self.check("num_kv_readers 2: a hit", self.client.lookup(tokens, request_id, readers=2) == 1)
        results = [self.client.retrieve(tokens, self.instance, request_id) for _ in range(3)]
        self.check("num_kv_readers 2: two retrieves, not three",
                   [equal(chunks, payloads) for chunks in results] == [True, True, False])

    def hit_is_a_prefix(self):
        tokens, _ = self.stored(3)
        other = self.client.tokens()
        chunk = self.client.chunk
        self.check("lookup: other first chunk, no hit", self.client.probe(other + tokens[chunk:]) == 0)
        self.check("lookup: other last chunk", self.client.probe(tokens[: 2 * chunk] + other) == 2)
        request_id = self.client.request_id()
        self.ask("lookup", make_key(self.client.model, tokens, 0, 2 * chunk - 1, request_id), 1)
        self.check("lookup: no further than end",
                   self.ask("wait_prefetch_status", request_id, TIMEOUT_S) == 1)
        self.client.free(tokens, request_id)

    def large_prompts(self):
        tokens = self.client.tokens() + [2**32 - 1] * (128 * 1024)
        self.check("lookup: a prompt of 128k tokens", self.client.probe(tokens) == 0)

    def registration_again(self):
        self.check("register: again with the same instance",
                   self.client.register(instance_id=self.instance) == self.instance)
        tokens, _ = self.stored()
        self.check("register: the cache is as before", self.client.probe(tokens) == 1)

    def layouts_are_counted(self):
        """Lookups are answered as long as one instance of (model, world) is registered."""
        tokens, _ = self.stored()
        second = self.client.register()
        self.client.unregister(second)
        self.check("unregister: the other instance still finds its chunks", self.client.probe(tokens) == 1)

    def clear_spares_locked_chunks(self):
        tokens, payloads = self.stored()
        request_id = self.client.request_id()
        self.client.lookup(tokens, request_id)
        self.check("clear: no value", self.ask("clear", False) is None)
        self.check("clear: a locked chunk is still there",
                   equal(self.client.retrieve(tokens, self.instance, request_id), payloads))
        self.ask("clear", False)
        self.check("clear: an unlocked one is gone", self.client.probe(tokens) == 0)
        tokens, _ = self.stored()
        self.client.lookup(tokens, self.client.request_id())
        self.ask("clear", True)
        self.check("clear: forced, a locked one is gone too", self.client.probe(tokens) == 0)

    def clear_after_commit(self):
        """Whatever the server still does with a large chunk that was just committed."""
        large = 2**21 // self.client.chunk  # 16 MiB a chunk
        model = self.client.model
        self.client.model += "-large"
        instance = self.client.register(hidden_dim_size=large)
        left = 0
        for _ in range(10):
            tokens = self.client.tokens()
            key = self.client.worker_key(tokens, self.client.request_id())
            self.ask("prepare_store", key, instance)
            committed = self.ask("commit_store", key, instance, b"")
            self.ask("clear", False)
            left += not committed or self.client.probe(tokens) != 0
        self.check("clear: a chunk that was just committed is gone", left == 0, f"{left} of 10 left")
        self.client.unregister(instance)
        self.client.model = model

    def dead_worker_leaves_nothing(self):
        tokens = self.client.tokens()
        dying = self.client.register()
        self.ask("prepare_store", self.client.worker_key(tokens, self.client.request_id()), dying)
        self.client.unregister(dying)
        self.check("robust: a chunk that was never written is no hit", self.client.probe(tokens) == 0)
        self.check("robust: its place is free for another worker",
                   self.client.store(tokens, self.instance, [self.client.payload(9)]) is True
                   and self.client.probe(tokens) == 1)

    def reused_request_id(self):
        request_id = self.client.request_id()
        first, second = self.client.tokens(), self.client.tokens()
        payloads = [self.client.payload(1)], [self.client.payload(2)]
        self.client.store(first, self.instance, payloads[0], request_id)
        self.client.store(second, self.instance, payloads[1], request_id)
        for tokens, expected, name in ((first, payloads[0], "first"), (second, payloads[1], "second")):
            lookup = self.client.request_id()
            found = self.client.lookup(tokens, lookup)
            self.check(f"robust: a request id reused with other tokens, {name} tokens", found == 1
                       and equal(self.client.retrieve(tokens, self.instance, lookup), expected))

    def overlapping_retrieves(self):
        """Two requests of one engine read the same chunks at the same time."""
        tokens, _ = self.stored(2)
        keys = [self.client.worker_key(tokens, self.client.request_id()) for _ in range(2)]
        for key in keys:
            self.client.lookup(tokens, key.request_id)
        prepared = [self.ask("prepare_retrieve", key, self.instance).success for key in keys]
        committed = [self.ask("commit_retrieve", key, self.instance) for key in keys]
        self.check("two overlapping retrieves succeed", prepared == committed == [True, True])
        self.ask("clear", False)
        self.check("robust: overlapping retrieves leave no lock", self.client.probe(tokens) == 0)

    def strangers_take_no_lock(self):
        tokens, payloads = self.stored()
        request_id, stranger = self.client.request_id(), self.client.request_id()
        self.client.lookup(tokens, request_id)
        self.client.retrieve(tokens, self.instance, stranger)
        self.check("robust: a retrieve without a lookup takes no other request's lock",
                   equal(self.client.retrieve(tokens, self.instance, request_id), payloads))

    def double_release(self):
        tokens, payloads = self.stored()
        first, second = self.client.request_id(), self.client.request_id()
        for request_id in (first, second):
            self.client.lookup(tokens, request_id)
        for _ in range(2):
            self.client.free(tokens, first)
        self.check("robust: locks freed twice are not another request's",
                   equal(self.client.retrieve(tokens, self.instance, second), payloads))

    def end_session_gives_locks_back(self):
        tokens, _ = self.stored()
        request_id = self.client.request_id()
        self.client.lookup(tokens, request_id)
        self.ask("end_session", request_id)
        self.ask("clear", False)
        self.check("robust: end_session ends the locks of its lookup", self.client.probe(tokens) == 0)

    def observations(self):
        record = BlockAllocationRecord("request", [1, 2], self.client.tokens())
        reply = self.ask("report_block_allocation", os.getpid(), self.client.model, [record])
        self.check("report_block_allocation: no value", reply is None)
        if "kv_event_stream" in self.ask("get_experimental"):
            self.events()

    def events(self):
        """Whoever offers the stream must tell what was stored; clients then tell nothing themselves."""
        batches = queue.SimpleQueue()
        stream = self.client.rpc.subscribe_kv_events(self.instance, self.client.model, 0, 64)
        reader = threading.Thread(target=lambda: [batches.put(batch) for batch in stream], daemon=True)
        reader.start()
        first = batches.get(timeout=TIMEOUT_S)
        self.check("subscribe_kv_events: a first batch at once", first.enabled is True, first)
        tokens, _ = self.stored(2)
        chunks = [tokens[: self.client.chunk], tokens[self.client.chunk :]]
        told = []
        try:
            while not all(chunk in told for chunk in chunks):
                records = batches.get(timeout=2.0).events
                told += [list(record.token_ids) for record in records if record.kind == "stored"]
        except queue.Empty:
            pass
        self.check("robust: subscribe_kv_events: both chunks are told as stored",
                   all(chunk in told for chunk in chunks), f"{len(told)} records")
        self.ask("clear", True)
        gone = 0
        try:
            while gone < len(chunks):
                gone += sum(record.kind == "removed" for record in batches.get(timeout=2.0).events)
        except queue.Empty:
            pass
        self.check("robust: subscribe_kv_events: both chunks are told as removed", gone == len(chunks), gone)
        stream.close()
        reader.join(TIMEOUT_S)

    def slots(self):
        tokens = self.client.tokens(2)
        key = self.client.worker_key(tokens, self.client.request_id())
        self.check("shm: commit_store without prepare_store is false",
                   self.ask("commit_store", key, self.instance, b"") is False)
        context = self.ask("prepare_store", key, self.instance).context
        shape = [2, LAYERS, self.client.chunk, HEADS * HEAD_SIZE]
        size = 2 * LAYERS * self.client.chunk * HEADS * HEAD_SIZE * 2
        self.check("shm: a slot for each chunk", context["chunk_indices"] == [0, 1] and all(
            (slot["length"], slot["shape"], slot["dtype"], slot["offset"] % 4096)
            == (size, shape, "float16", 0) for slot in context["slots"]), context)
        again = self.ask("prepare_store", key, self.instance).context
        self.check("shm: none while they are being written", again == {"slots": [], "chunk_indices": []})
        self.check("shm: not visible before the commit", self.client.probe(tokens) == 0)
        for number, slot in enumerate(context["slots"]):
            self.client.write(slot, self.client.payload(number))
        self.check("shm: commit_store", self.ask("commit_store", key, self.instance, b"") is True)
        self.check("shm: visible after the commit", self.client.probe(tokens) == 2)
        self.check("shm: committed once", self.ask("commit_store", key, self.instance, b"") is False)
        longer = tokens + self.client.tokens(1)
        context = self.ask("prepare_store", self.client.worker_key(longer, key.request_id),
                           self.instance).context
        self.check("shm: a slot for the missing chunk alone",
                   context["chunk_indices"] == [2] and len(context["slots"]) == 1, context)

    def inline_data_on_a_shm_server(self):
        """A worker that could not map the segment sends its chunks inline all the same."""
        tokens = self.client.tokens()
        payloads = [self.client.payload(3)]
        key = self.client.worker_key(tokens, self.client.request_id())
        self.ask("prepare_store", key, self.instance)
        reply = self.ask("commit_store", key, self.instance, self.client.pickled(payloads))
        request_id = self.client.request_id()
        self.check("robust: inline data on a shm server is stored", reply is True
                   and self.client.lookup(tokens, request_id) == 1
                   and equal(self.client.retrieve(tokens, self.instance, request_id), payloads))

    def inline(self):
        tokens = self.client.tokens(3)
        payloads = [self.client.payload(number) for number in range(3)]
        key = self.client.worker_key(tokens, self.client.request_id())
        self.check("inline: prepare_store answers an empty context",
                   self.ask("prepare_store", key, self.instance).context == {})
        self.check("inline: commit_store",
                   self.ask("commit_store", key, self.instance, self.client.pickled(payloads)) is True)
        self.check("inline: commit_store again", self.ask(
            "commit_store", key, self.instance, self.client.pickled(payloads)) is True)
        # A view into a larger storage: the offset counts.
        whole = self.client.payload(0).new_zeros(3, *self.client.payload(0).shape)
        whole[1] = self.client.payload(4)
        tokens = self.client.tokens()
        self.check("inline: a view with an offset",
                   self.client.store(tokens, self.instance, [whole[1]]) is True)
        request_id = self.client.request_id()
        self.client.lookup(tokens, request_id)
        self.check("inline: the view's bytes come back",
                   equal(self.client.retrieve(tokens, self.instance, request_id), [self.client.payload(4)]))
