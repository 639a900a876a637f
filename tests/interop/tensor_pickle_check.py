#!/usr/bin/env python3
"""Sends tensors that real torch pickled through kvasir's reader and writer, and loads the result.

usage: tensor_pickle_check.py TENSOR_PICKLE_ECHO

Equal tensors of every dtype prove both directions: the reader found the bytes, dtype and shape that
torch wrote, and Python's unmodified pickle.loads accepts what the writer made of them.
"""
import pickle
import subprocess
import sys

import torch

DTYPES = ("float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
          "uint8 int8 int16 int32 int64 bool uint16 uint32 uint64").split()


def random_tensor(dtype, *shape):
    item = torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape[:-1], shape[-1] * item), dtype=torch.uint8)
    return raw.view(dtype)


def raw_bytes(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def echo(program, tensors, protocol=None):
    return subprocess.run([program], input=pickle.dumps(tensors, protocol), capture_output=True, check=False)


def check(program, name, tensors, protocol=None):
    done = echo(program, tensors, protocol)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr.decode()}")
    loaded = pickle.loads(done.stdout)
    assert type(loaded) is list and len(loaded) == len(tensors), name
    for got, sent in zip(loaded, tensors):
        assert got.dtype == sent.dtype and got.shape == sent.shape and got.is_contiguous(), name
        assert raw_bytes(got) == raw_bytes(sent), name  # bytes, because a NaN equals nothing
        assert not got.requires_grad and got.device.type == "cpu", name


def check_refused(program, reason, tensors):
    done = echo(program, tensors)
    assert done.returncode == 1 and reason in done.stderr.decode(), f"{reason}: {done}"
    print(f"refused: {done.stderr.decode().strip()}")


def main():
    program = sys.argv[1]
    torch.manual_seed(1)
    for name in DTYPES:
        dtype = getattr(torch, name)
        check(program, name, [random_tensor(dtype, 2, 1, 2, 3)])
        check(program, name, [random_tensor(dtype, 2, 3, 16, 64) for _ in range(5)])
        check(program, name, [random_tensor(dtype, 1)])
        # Views: the whole storage is pickled with each of them.
        whole = random_tensor(dtype, 4, 2, 16, 8)
        check(program, name, [whole[i] for i in range(4)])
        check(program, name, [whole.flatten()[5:29]])
        for protocol in (3, 4, 5):
            check(program, f"{name}, protocol {protocol}", [random_tensor(dtype, 2, 3)] * 2, protocol)
        print(f"the same back: {name}")
    # Frames are split around long bytes, items are appended a thousand at a time.
    check(program, "long", [random_tensor(torch.bfloat16, 2, 4, 256, 512) for _ in range(3)])
    check(program, "many", [random_tensor(torch.float16, 2, 1, 2, 2) for _ in range(2500)])
    check(program, "the most", [random_tensor(torch.uint8, 2, 1, 1, 1) for _ in range(8192)])
    check(program, "none", [])
    check(program, "eight dimensions", [random_tensor(torch.int16, 1, 2, 1, 2, 1, 2, 1, 3)])
    check(program, "no dimension", [torch.tensor(3.5, dtype=torch.float32)])
    check_refused(program, "not contiguous", [random_tensor(torch.float16, 4, 6).t()])
    check_refused(program, "too many dimensions", [random_tensor(torch.int8, *[1] * 9)])
    check_refused(program, "requires a gradient", [torch.ones(3, requires_grad=True)])
    check_refused(program, "torch ComplexFloatStorage", [torch.ones(3, dtype=torch.complex64)])
    check_refused(program, "too many tensors", [torch.ones(1, dtype=torch.uint8)] * 8193)
    check_refused(program, "builtins object", [object()])
    check_refused(program, "builtins print", [print])
    check_refused(program, "no list", {"a": torch.ones(1)})


main()
