#!/usr/bin/env python3
"""Writes the seed corpora of the fuzzers from the golden data: python3 make_corpus.py

Files are named after their content, so running it again changes nothing and leaves findings alone.
"""
import hashlib
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "lm"
MP_GOLDEN = HERE.parent / "golden" / "mp"


def vectors(name, key="vectors"):
    return json.loads((GOLDEN / name).read_text())[key]


def write(corpus, data):
    folder = HERE / "corpus" / corpus
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)


def tensor_lists():
    cases = json.loads((MP_GOLDEN / "pickle_payload.json").read_text())["cases"]
    minimal = [bytes.fromhex(x["minimal_writer_hex"]) for x in cases]
    yield from minimal
    for x in cases:
        yield bytes.fromhex(x["torch_pickle_hex"])
    yield minimal[0][:-2] + minimal[2][4:]  # two tensors
    of_bytes = next(x for x in minimal if b"ByteStorage" in x)
    yield of_bytes.replace(b"_v2", b"_v3").replace(b")RtR", b")Rctorch\nfloat8_e4m3fn\ntR")
    untyped = of_bytes.replace(b"torch\nByteStorage", b"torch.storage\nUntypedStorage")
    yield untyped.replace(b"\x8e\xce", b"\x8e\xd9")
    yield b"\x80\x04]cos\nsystem\nX\x02\0\0\0id\x85Ra."
    yield b"\x80\x04]\x94N\x94h\0j\1\0\0\0q\x02r\x03\0\0\0\x85\x86\x87."


def mp_requests():
    """Operation frames, and requests as the fuzzer frames them; long ones and repetitions stay out."""
    seen = set()
    for strategy in ("shm", "pickle"):
        conversation = MP_GOLDEN / f"conversation_{strategy}_chunk16.json"
        for x in json.loads(conversation.read_text())["messages"]:
            if x.get("dir") != "C->S" or x["op"] == "stream-control":
                continue
            _, op, *arguments = (bytes.fromhex(y["hex"]) for y in x["frames"])
            yield op
            number = {"subscribe_kv_events": 100}.get(x["op"], op[0] if len(op) == 1 else None)
            kind = (number, *((y[:1], len(y)) for y in arguments))
            if number is None or kind in seen or any(len(y) > 800 for y in arguments):
                continue
            seen.add(kind)
            yield bytes([number]) + b"".join(len(y).to_bytes(2, "little") + y for y in arguments)


def main():
    for name in ("client_frames.json", "server_frames.json", "malformed_client_headers.json"):
        for x in vectors(name):
            if "hex" in x:
                write("lm_frame", bytes.fromhex(x["hex"]))
    for data in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n",
                 b"\xff" + bytes(7) + b"\x01\x7f", b"\x01"):
        write("lm_frame", data)
    frames = [(x, "get_frame_hex") for x in vectors("keys.json")]
    frames += [(x, "frame_hex") for x in vectors("key_strings.json")]
    for x, name in frames:
        if name in x:
            write("lm_key", bytes.fromhex(x[name])[36:].rstrip(b" "))
    for x in vectors("python_keys.json")[::4]:
        write("lm_key", x["key"].encode())
    for x in vectors("remote_metadata.json"):
        if "hex" in x:
            write("lm_remote_metadata", bytes.fromhex(x["hex"]))
    for data in tensor_lists():
        write("tensor_pickle", data)
    for data in mp_requests():
        write("mp_request", data)


main()
