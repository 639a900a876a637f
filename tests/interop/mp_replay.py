#!/usr/bin/env python3
"""Sends recorded conversations of LMCache's clients to an MP server and compares its replies with the recorded ones.

  mp_replay.py tcp://HOST:PORT FILE

Every frame of every client goes out as it was recorded, in that order; each reply must be equal byte for byte,
except in the ways that deviations.md names with a reason. The server must be fresh and have 16 tokens a chunk.
The recording does not contain what clients wrote into shared memory: here it is made up, and must come back.
The exit status is the number of replies that differ, at most 100.
"""

import argparse
import json
import mmap
import pickle
import re
import sys
from collections import Counter
from pathlib import Path

import msgspec
import torch
import zmq

HERE = Path(__file__).resolve().parent
REPLY_TIMEOUT_S = 5.0
CHUNK_TOKENS = 16
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


class Different(Exception):
    """A reply that differs from the recorded one in a way that no deviation allows."""


def require(condition, what):
    if not condition:
        raise Different(what)


def reasons():
    """The names of the deviations that deviations.md gives a reason for."""
    text = (HERE / "deviations.md").read_text()
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))


class Segment:
    """The server's shared memory, and what this client wrote into it."""

    def __init__(self):
        self.memory = None
        self.written = {}

    def attach(self, name):
        """Clients map it after every registration; a server may watch whether they do."""
        with open(Path("/dev/shm") / name.lstrip("/"), "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)

    def write(self, chunk, slot):
        data = (str(len(self.written)).encode() + b".") * slot["length"]
        self.written[chunk] = data[: slot["length"]]
        self.memory[slot["offset"] : slot["offset"] + slot["length"]] = self.written[chunk]

    def holds(self, chunk, slot):
        """Whether the slot has what was last written for the chunk; unwritten chunks are not judged."""
        expected = self.written.get(chunk)
        return expected is None or self.memory[slot["offset"] : slot["offset"] + slot["length"]] == expected


def chunk_of(key, index):
    """The identity of the `index`-th chunk of a worker's key."""
    end = key["start"] + (index + 1) * CHUNK_TOKENS
    return key["model_name"], key["cache_salt"], key["world_size"], key["worker_id"], tuple(key["token_ids"][:end])


class Replay:
    def __init__(self, url, conversation):
        self.url = url
        self.messages = [message for message in conversation["messages"] if "frames" in message]
        self.sockets = {}
        self.segment = Segment()
        self.reasons = reasons()
        self.deviations = Counter()
        self.equal = self.different = 0

    def socket(self, peer):
        if peer not in self.sockets:
            self.sockets[peer] = zmq.Context.instance().socket(zmq.DEALER)
            self.sockets[peer].linger = 0
            self.sockets[peer].connect(self.url)
        return self.sockets[peer]

    def deviate(self, name):
        if name not in self.reasons:
            raise KeyError(f"deviations.md gives no reason for {name}")
        self.deviations[name] += 1

    def run(self):
        for number, message in enumerate(self.messages):
            if message["dir"] != "C->S":
                continue
            request = frames_of(message)
            socket = self.socket(message["peer"])
            socket.send_multipart(request)
            if message["op"] == "stream-control":
                continue  # flow control of the event stream, never answered
            try:
                reply = self.receive(socket, request[0])
                self.compare(message["op"], request, self.recorded_reply(number, message), reply)
                self.equal += 1
            except Different as error:
                self.different += 1
                print(f"FAIL message {number}, {message['op']}: {error}", flush=True)

    def receive(self, socket, uid):
        while socket.poll(REPLY_TIMEOUT_S * 1000):
            frames = socket.recv_multipart()
            if frames[0] == uid:
                return frames
        raise Different(f"no reply within {REPLY_TIMEOUT_S} s")

    def recorded_reply(self, number, request):
        """The first reply with the same uid on the same socket; None if the reference was silent."""
        uid = request["frames"][0]["hex"]
        for message in self.messages[number + 1 :]:
            if message["dir"] == "S->C" and message["peer"] == request["peer"] and message["frames"][0]["hex"] == uid:
                return frames_of(message)
        return None

    def compare(self, operation, request, recorded, reply):
        if recorded is None:
            return self.compare_with_silence(request, reply)
        if operation in ("get_experimental", "subscribe_kv_events"):
            return self.compare_events(operation, request, reply)
        require(reply[:2] == request[:2], f"uid and operation are {hexes(reply[:2])}")
        require(len(reply) == len(recorded), f"{len(reply)} frames instead of {len(recorded)}")
        if len(reply) == 2:
            return None
        require(len(reply) == 3, f"{len(reply)} frames")
        compare = getattr(self, f"compare_{operation}", None)
        if compare:
            compare(request, recorded[2], reply[2])
        elif reply[2] != recorded[2]:
            raise Different(f"{reply[2].hex()[:200]} instead of {recorded[2].hex()[:200]}")

    def compare_with_silence(self, request, reply):
        self.deviate("answer instead of silence")
        same = reply[1] == request[1] and len(reply) in (2, 3)
        other = len(reply) == 2 and reply[1] != request[1] and isinstance(unpack(reply[1]), str)
        require(same or other, f"neither a result nor an error: {hexes(reply)}")

    def compare_events(self, operation, request, reply):
        self.deviate("events")
        if operation == "get_experimental":
            names = unpack(reply[2])
            require(reply[:2] == request[:2] and isinstance(names, list)
                    and all(isinstance(name, str) for name in names), hexes(reply))

    def compare_ping(self, _request, recorded, reply):
        if reply != recorded:
            self.deviate("boot id")
            value = unpack(reply)
            require(type(value) is int and 0 < value < 2**64, f"{value!r} is no boot id")

    def compare_register_kv_cache_engine_driven_context(self, _request, recorded, reply):
        recorded, reply = canonical(recorded), canonical(reply)
        require(list(reply) == list(recorded), f"fields {list(reply)}")
        if not recorded["shm_name"]:
            require(reply == recorded, f"{reply} instead of {recorded}")
            return
        self.deviate("segment")
        require(reply["shm_name"].startswith("lmcache_l1_pool_") and reply["pool_size"] > 0, reply)
        self.segment.attach(reply["shm_name"])

    def compare_prepare_store(self, request, recorded, reply):
        recorded, reply = canonical(recorded), canonical(reply)
        self.compare_slots(recorded, reply)
        context, key = reply["context"], unpack(request[2])
        for slot, index in zip(context.get("slots", []), context.get("chunk_indices", []), strict=True):
            self.segment.write(chunk_of(key, index), slot)

    def compare_prepare_retrieve(self, request, recorded, reply):
        recorded, reply = canonical(recorded), canonical(reply)
        if recorded["data"] and reply["data"] != recorded["data"]:
            self.deviate("inline bytes")
            require(same_tensors(reply["data"], recorded["data"]), "other tensors")
            reply["data"] = recorded["data"]
        self.compare_slots(recorded, reply)
        for index, slot in enumerate(reply["context"].get("slots", [])):
            require(self.segment.holds(chunk_of(unpack(request[2]), index), slot), f"chunk {index} has other bytes")

    def compare_slots(self, recorded, reply):
        """Equal except for where the slots are."""
        def without_offsets(result):
            slots = [{**slot, "offset": 0} for slot in result["context"].get("slots", [])]
            return pack({**result, "context": {**result["context"], **({"slots": slots} if slots else {})}})

        require(without_offsets(reply) == without_offsets(recorded), f"{reply} instead of {recorded}")
        offsets = [slot["offset"] for slot in reply["context"].get("slots", [])]
        if offsets:
            self.deviate("slot offsets")
            require(all(offset % 4096 == 0 for offset in offsets) and len(set(offsets)) == len(offsets), offsets)


def frames_of(message):
    return [bytes.fromhex(frame["hex"]) for frame in message["frames"]]


def hexes(frames):
    return [frame.hex()[:80] for frame in frames]


def canonical(frame):
    """Decodes a value and demands the one encoding that msgspec would choose."""
    value = unpack(frame)
    require(pack(value) == frame, f"not the shortest encoding: {frame.hex()[:200]}")
    return value


def same_tensors(left, right):
    """Loads both as LMCache's client does. They come from a recording and a server of our own."""
    left, right = pickle.loads(left), pickle.loads(right)
    return len(left) == len(right) and all(
        one.dtype == other.dtype and torch.equal(one, other) for one, other in zip(left, right))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    replay = Replay(arguments.url, json.loads(arguments.file.read_text()))
    replay.run()
    for name, count in replay.deviations.items():
        print(f"deviation: {name}: {count} replies")
    print(f"RESULT {replay.equal} replies as recorded, {replay.different} not")
    return min(replay.different, 100)


if __name__ == "__main__":
    sys.exit(main())
