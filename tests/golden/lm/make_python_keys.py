#!/usr/bin/env python3
"""Writes python_keys.json: what CPython's int(), strip() and isdigit() make of odd keys.

parse() restates CacheEngineKey.from_string of LMCache 0.5.6; the rules under test are Python's.
Run with CPython 3.11: python3 make_python_keys.py > python_keys.json
"""
import json
import random
import sys

DTYPES = ("half bfloat16 float double int8 uint8 int16 int32 int64 bool fp8_e4m3fn fp8_e4m3fnuz "
          "fp8_e5m2 fp8_e5m2fnuz").split()
SPACES = ["", "", "", " ", "\t", "\n", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u2003", "\u3000", "\u200b"]
DIGITS = ["0", "1", "9", "a", "F", "g", "_", "__", "0x", "0X_", "+", "-", "-0", "\u0663", "\uff10",
          "\uff11", "\U0001d7d8", "\xb2", "\u2460", ".", " ", "x", "\0"]
WORDS = ["", "m", "a b", "org/model", "\xe9", "\u4e2d", "%", "n%v", "n%w", "5", "05", "\u0665", "\u0660\u0665",
         "3 ", "-1", "a\nb", "t%a ", "t%b", "5%", "\U0001f680%\x7f", "\x80"]


def parse(text):
    parts = text.strip().split("@")
    if len(parts) < 5 or parts[4] not in DTYPES:
        raise ValueError
    world, worker, chunk = int(parts[1]), int(parts[2]), int(parts[3], 16)
    rest = parts[5:]
    layer = None
    if rest and rest[0].isdigit():
        layer = int(rest.pop(0))
    tags = {}
    for part in rest:
        name, value = part.split("%", 1)
        tags[name] = value
    out = [parts[0], str(world), str(worker), format(chunk, "x"), parts[4]]
    out += [] if layer is None else [str(layer)]
    return "@".join(out + [name + "%" + value for name, value in tags.items()])


def main():
    rng = random.Random(20240611)
    number = lambda: (rng.choice(SPACES) + "".join(rng.choices(DIGITS, k=rng.choice((1, 1, 2, 3)))) + rng.choice(SPACES))
    seen, good, bad = set(), [], []
    while len(good) < 250 or len(bad) < 150:
        parts = [rng.choice(WORDS)]
        odd = rng.randrange(4)
        for i in (1, 2, 3):
            parts.append(number() if odd == i or not rng.randrange(8) else rng.choice("017"))
        parts.append(rng.choice(DTYPES))
        parts += rng.choices(WORDS, k=rng.choice((0, 0, 0, 1, 2, 3)))
        text = rng.choice(SPACES) + "@".join(parts) + rng.choice(SPACES)
        if text in seen:
            continue
        seen.add(text)
        try:
            row, rows, limit = {"key": text, "canonical": parse(text)}, good, 250
        except ValueError:
            row, rows, limit = {"key": text, "error": True}, bad, 150
        if len(rows) < limit:
            rows.append(row)
    json.dump({"generator": "CPython " + sys.version.split()[0], "vectors": good + bad}, sys.stdout, indent=0)
    print()


main()
