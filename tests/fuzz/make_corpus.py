#!/usr/bin/env python3
"""Writes the seed corpora of the lm fuzzers from the golden data: python3 make_corpus.py

Files are named after their content, so running it again changes nothing and leaves findings alone.
"""
import hashlib
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "lm"


def vectors(name, key="vectors"):
    return json.loads((GOLDEN / name).read_text())[key]


def write(corpus, data):
    folder = HERE / "corpus" / corpus
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)


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


main()
