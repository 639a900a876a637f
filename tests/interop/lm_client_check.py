#!/usr/bin/env python3
"""Drives an lm:// server with LMCache 0.5.6's own client classes and checks every byte that comes back.

  lm_client_check.py HOST PORT [--quick] [--no-probes] [--client-bugs] [--json FILE] [--cpu-gb SIZE]

Through RemoteBackend (remote_url lm://HOST:PORT, serde naive) and LMCServerConnector, with memory of LocalCPUBackend:
every dtype and layout, sizes, keys, batched and asynchronous calls, several clients at once. Probes on plain sockets
cover what that client never sends: HEALTH, LIST, pipelines, truncated and malformed frames.

Each row is PASS, FAIL or INFO (recorded, not judged); the exit status is the number of FAILs, at most 100.
LMCache's own server fails the rows whose names begin with "robust:"; kvasird must pass all.
"""
import gc, os, sys, time, socket, struct, threading, asyncio, argparse, json, itertools, random
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")
os.environ.setdefault("PYTHONHASHSEED", "0")
ap = argparse.ArgumentParser()
ap.add_argument("host"); ap.add_argument("port", type=int)
ap.add_argument("--quick", action="store_true"); ap.add_argument("--no-probes", action="store_true")
ap.add_argument("--client-bugs", action="store_true", help="also demonstrate bugs of the real client (desync cases)")
ap.add_argument("--json"); ap.add_argument("--cpu-gb", type=float, default=1.0)
A = ap.parse_args()
import numpy as np, torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend
from lmcache.v1.memory_management import MemoryFormat, BytesBufferMemoryObj
from lmcache.utils import CacheEngineKey, LayerCacheEngineKey
import lmcache.v1.protocol as P
# A cyclic collection inside LMCache's allocator can free a memory object there and wait for ever for the lock that
# the allocator already holds. So it runs only between the steps, when no allocator is at work.
gc.disable()
RUN = "%x" % random.SystemRandom().getrandbits(40)
rows = []
def row(name, ok, detail=""):
    st = ok if isinstance(ok, str) else ("PASS" if ok else "FAIL")
    rows.append((name, st, detail)); print("%-4s %-58s %s" % (st, name, detail), flush=True)
def step(name):
    def d(f):
        gc.collect()
        try:
            r = f()
            if r is None: r = (True, "")
            row(name, *(r if isinstance(r, tuple) else (r,)))
        except Exception as e:
            row(name, False, "%s: %s" % (type(e).__name__, str(e)[:140]))
        return f
    return d

def rx(s, n):
    b = bytearray()
    while len(b) < n:
        p = s.recv(n - len(b))
        if not p: raise EOFError("closed after %d of %d" % (len(b), n))
        b += p
    return bytes(b)
def frame(cmd, kb=None, length=0, fmt=1, dtype=2, loc=0, shape=(0, 0, 0, 0)):
    return struct.pack("iiiiiiiii150s", cmd, length, fmt, dtype, loc, *shape, (kb if kb is not None else b"x@1@0@1@half").ljust(150))
def conn(t=3.0):
    s = socket.create_connection((A.host, A.port), 5); s.settimeout(t); return s
OKR = struct.pack("9i", 200, 0, 1, 2, 0, 0, 0, 0, 0); MISS = struct.pack("9i", 400, 0, 1, 2, 0, 0, 0, 0, 0)
def alive():
    with conn() as s: s.sendall(frame(5)); return rx(s, 36) == OKR
def outcome(s, n=36):
    try:
        d = s.recv(n); return "closed" if d == b"" else "reply " + d.hex()
    except socket.timeout: return "silent"
    except ConnectionError as e: return "reset"
# ---------------------------------------------------------------- real stack
class Stack:
    def __init__(self, kv_dtype=torch.bfloat16, use_mla=False, layerwise=False, gb=None):
        self.cfg = LMCacheEngineConfig.from_defaults(chunk_size=256, local_cpu=False, max_local_cpu_size=gb or A.cpu_gb,
            remote_url="lm://%s:%d" % (A.host, A.port), remote_serde="naive", use_layerwise=layerwise, lmcache_instance_id="kvasir_check")
        self.md = LMCacheMetadata(model_name="check/" + RUN, world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
            kv_dtype=kv_dtype, kv_shape=(4, 1 if use_mla else 2, 256, 1 if use_mla else 4, 576 if use_mla else 32), use_mla=use_mla, chunk_size=256)
        self.loop = asyncio.new_event_loop()
        self.th = threading.Thread(target=self.loop.run_forever, daemon=True); self.th.start()
        self.cpu = LocalCPUBackend(self.cfg, self.md, dst_device="cpu")
        self.rb = RemoteBackend(self.cfg, self.md, self.loop, self.cpu, dst_device="cpu")
        assert self.rb.connection is not None, "could not connect"
        self.conn = self.rb.connection.getWrappedConnector()
    def co(self, c, t=60): return asyncio.run_coroutine_threadsafe(c, self.loop).result(t)
    def obj(self, shape, dtype, fmt, seed):
        o = self.cpu.allocate(torch.Size(shape), dtype, fmt)
        assert o is not None, "allocator returned None"
        a = np.frombuffer(o.byte_array, dtype=np.uint8); a[:] = np.random.default_rng(seed).integers(0, 256, a.size, dtype=np.uint8)
        return o
    def put(self, key, o, t=120):
        f = self.rb.submit_put_task(key, o); f.result(t)
    def get(self, key): return self.rb.get_blocking(key)
    def has(self, key): return self.rb.contains(key)
    def close(self):
        try: self.rb.close()
        except Exception: pass
        self.loop.call_soon_threadsafe(self.loop.stop); self.th.join(5)
def raw(o): return bytes(o.byte_array)
_n = itertools.count(1)
def key(dtype=torch.bfloat16, h=None, model=None, rc=None, ws=1, wid=0):
    return CacheEngineKey(model or "check/" + RUN, ws, wid, next(_n) if h is None else h, dtype, rc)

S = Stack()
row("connect: RemoteBackend(lm://) up", True, type(S.conn).__name__)
row("client: support_ping()", "INFO", str(S.conn.support_ping()) + " (client never sends HEALTH)")

@step("exist: missing key -> False")
def _(): return S.has(key()) is False
@step("get: missing key -> None")
def _(): return S.get(key()) is None
@step("get: miss does not desync (exist+get again)")
def _():
    k = key(); return S.get(k) is None and S.has(k) is False and S.get(k) is None

CASES = [(torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float32, "fp32"), (torch.float64, "fp64"), (torch.uint8, "u8"), (torch.float8_e4m3fn, "fp8_e4m3"), (torch.float8_e5m2, "fp8_e5m2")]
LAY = [(MemoryFormat.KV_2LTD, (2, 4, 64, 128)), (MemoryFormat.KV_2LTD, (2, 4, 1, 128)), (MemoryFormat.KV_T2D, (64, 2, 128)), (MemoryFormat.KV_2TD, (2, 64, 128)),
       (MemoryFormat.KV_MLA_FMT, (1, 4, 64, 576)), (MemoryFormat.KV_MLA_FMT, (64, 576)), (MemoryFormat.EC_TD, (64, 96)), (MemoryFormat.HS_TD, (64, 96)), (MemoryFormat.EC_TD, (4096,))]
for dt, dn in CASES:
    for fmt, shp in LAY:
        @step("put/exist/get %-8s %-10s %s" % (dn, fmt.name, "x".join(map(str, shp))))
        def _(dt=dt, fmt=fmt, shp=shp):
            k = key(dt if dt in (torch.float16, torch.bfloat16, torch.float32) else torch.uint8)
            o = S.obj(shp, dt, fmt, 1 + hash(dn) % 1000); want = raw(o)
            S.put(k, o)
            assert S.has(k), "exist False after put"
            g = S.get(k); assert g is not None, "get None after put"
            assert raw(g) == want, "bytes differ"
            assert g.get_dtype() == dt and tuple(g.get_shape()) == shp and g.get_memory_format() == fmt, "meta differs: %s %s %s" % (g.get_dtype(), g.get_shape(), g.get_memory_format())
            g.ref_count_down()
            return True, "%d B" % len(want)

sizes = [1 << 10, 4 << 10, 36, 35, 37, 186, 64 << 10, 1 << 20, (1 << 20) + 1, 16 << 20] + ([] if A.quick else [64 << 20])
for n in sizes:
    @step("size %d B uint8 (n,) EC_TD" % n)
    def _(n=n):
        k = key(torch.uint8); o = S.obj((n,), torch.uint8, MemoryFormat.EC_TD, n); want = raw(o)
        t = time.perf_counter(); S.put(k, o); assert S.has(k); t1 = time.perf_counter()
        g = S.get(k); t2 = time.perf_counter(); assert g is not None and raw(g) == want; g.ref_count_down()
        return True, "put+exist %.2f ms, get %.2f ms" % ((t1 - t) * 1e3, (t2 - t1) * 1e3)
@step("overwrite: second put wins, new shape and size")
def _():
    k = key(torch.float16)
    S.put(k, S.obj((2, 2, 4, 8), torch.float16, MemoryFormat.KV_2LTD, 1)); o = S.obj((2, 2, 9, 8), torch.float16, MemoryFormat.KV_2LTD, 2); want = raw(o); S.put(k, o)
    g = S.get(k); ok = raw(g) == want and tuple(g.get_shape()) == (2, 2, 9, 8); g.ref_count_down(); return ok
@step("put same bytes twice is idempotent; get twice equal")
def _():
    k = key(); o = S.obj((2, 2, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 7); want = raw(o); S.put(k, o)
    a = raw(S.get(k)); b = raw(S.get(k)); return a == want == b
@step("BINARY_BUFFER via connector.put/get (serde output), dtype None")
def _():
    k = key(); data = os.urandom(5000); S.co(S.conn.put(k, BytesBufferMemoryObj(data)))
    try: g = S.co(S.conn.get(k))
    except Exception as e: return "INFO", "client cannot allocate BINARY_BUFFER here: %s: %s" % (type(e).__name__, str(e)[:80])
    return bytes(g.byte_array)[:5000] == data, "%s %s" % (g.get_shape(), g.get_memory_format())
if rows[-1][1] != "PASS":   # connection may be out of step after a client-side exception
    S.close(); S = Stack()

# ---------------------------------------------------------------- keys
@step("keys: layer keys are distinct from each other and from the chunk key")
def _():
    k = key(); ks = k.split_layers(3); vals = []
    for i, kk in enumerate([k] + ks):
        o = S.obj((16, 2, 8), torch.bfloat16, MemoryFormat.KV_T2D, 50 + i); vals.append(raw(o)); S.put(kk, o)
    return all(raw(S.get(kk)) == v for kk, v in zip([k] + ks, vals))
@step("keys: tags distinguish, order matters, non-tag request configs ignored")
def _():
    h = next(_n); mkk = lambda rc: key(h=h, rc=rc)
    a = mkk({"lmcache.tag.u": "1"}); b = mkk({"lmcache.tag.u": "2"}); c = mkk({"lmcache.tag.u": "1", "lmcache.tag.v": "2"}); d = mkk({"lmcache.tag.v": "2", "lmcache.tag.u": "1"}); p = mkk(None)
    S.put(a, S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 1))
    r = [S.has(x) for x in (a, b, c, d, p, mkk({"lmcache.tag.u": "1", "temperature": 3}))]
    S.put(c, S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 1)); r += [S.has(c), S.has(d)]
    return r == [True, False, False, False, False, True, True, False], str(r)
@step("keys: dtype, world_size, worker_id, model each distinguish")
def _():
    h = next(_n); S.put(key(h=h), S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 1))
    r = [S.has(key(h=h)), S.has(key(torch.float16, h=h)), S.has(key(h=h, ws=2)), S.has(key(h=h, wid=1)), S.has(key(h=h, model="other"))]
    return r == [True, False, False, False, False], str(r)
for nm, h in [("0", 0), ("-1", -1), ("int64 min", -(1 << 63)), ("uint64 max", (1 << 64) - 1), ("256-bit", (1 << 256) - 1 - int(RUN, 16)), ("bytes32 leading zeros", bytes(28) + os.urandom(4))]:
    @step("keys: chunk hash %s" % nm)
    def _(h=h):
        k = key(h=h); o = S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 3); w = raw(o); S.put(k, o); g = S.get(k); return g is not None and raw(g) == w
def model_len(nchars, ch="m"):
    base = len(CacheEngineKey("", 1, 0, 0xabc, torch.bfloat16).to_string()); return ch * (nchars - base - len(RUN)) + RUN
@step("keys: exactly 150 bytes works, differs from its 149-byte prefix sibling")
def _():
    k = key(h=0xabc, model=model_len(150)); k2 = key(h=0xabc, model=model_len(149)); assert len(k.to_string()) == 150
    o = S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 4); w = raw(o); S.put(k, o); return raw(S.get(k)) == w and S.has(k2) is False
@step("keys: unicode model name and tag")
def _():
    k = key(model="mod\u00e8le-\u4e2d\u6587-\U0001f680" + RUN, rc={"lmcache.tag.n": "\u00e9"}); o = S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 4); w = raw(o); S.put(k, o); return raw(S.get(k)) == w
@step("keys: 151 chars -> client refuses locally, connection stays usable")
def _():
    k = key(h=0xabc, model=model_len(151)); err = ""
    try: S.put(k, S.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 4))
    except AssertionError as e: err = str(e)[:50]
    return S.has(k) is False and S.get(k) is None and S.has(key()) is False and "exceeds" in err, err
@step("dtype int8 -> client refuses locally (KeyError), connection stays usable")
def _():
    k = key(torch.int8); err = ""
    try: S.put(k, S.obj((2, 1, 4, 8), torch.int8, MemoryFormat.KV_2LTD, 4))
    except KeyError as e: err = repr(e)
    return "int8" in err and S.has(k) is False, err
@step("torch.half wire code is 2 and survives; wire code 1 also reads as fp16")
def _():
    k = key(torch.float16); kb = k.to_string().encode().ljust(150); data = os.urandom(2 * 8)
    with socket.create_connection((A.host, A.port), 5) as s:
        s.sendall(struct.pack("iiiiiiiii150s", 1, 16, 1, 1, 0, 2, 1, 1, 4, kb) + data + struct.pack("iiiiiiiii150s", 2, 0, 1, 2, 0, 0, 0, 0, 0, kb)); h = rx(s, 36); d = rx(s, 16)
    m = P.ServerMetaMessage.deserialize(h); g = S.get(k)
    return d == data and m.dtype == torch.float16 and raw(g) == data and g.get_dtype() == torch.float16, "wire dtype in reply = %d" % struct.unpack("9i", h)[3]

# ---------------------------------------------------------------- batched paths used by vLLM
@step("batched: batched_submit_put_task, batched_contains prefix, batched_get_blocking")
def _():
    ks = [key() for _ in range(8)]; os_ = [S.obj((2, 4, 16, 64), torch.bfloat16, MemoryFormat.KV_2LTD, i) for i in range(6)]; w = [raw(o) for o in os_]
    S.rb.batched_submit_put_task(ks[:6], os_); t = time.time()
    while S.rb.put_tasks and time.time() - t < 10: time.sleep(.002)
    n = S.rb.batched_contains(ks); g = S.rb.batched_get_blocking(ks)
    return n == 6 and [raw(x) for x in g[:6]] == w and g[6:] == [None, None], "prefix=%d" % n
@step("batched async: batched_async_contains + batched_get_non_blocking (gather on one socket)")
def _():
    ks = [key() for _ in range(8)]; os_ = [S.obj((2, 4, 64, 64), torch.bfloat16, MemoryFormat.KV_2LTD, i) for i in range(6)]; w = [raw(o) for o in os_]
    for k, o in zip(ks, os_): S.rb.submit_put_task(k, o)
    n = S.co(S.rb.batched_async_contains("l", ks)); g = S.co(S.rb.batched_get_non_blocking("l", ks))
    return n == 6 and [raw(x) for x in g] == w, "prefix=%d got=%d" % (n, len(g))
@step("interleave: 200 async puts + gets + exists in flight on one client")
def _():
    ks = [key() for _ in range(200)]; w = {}
    futs = []
    for i, k in enumerate(ks):
        o = S.obj((2, 1, 16, 64), torch.bfloat16, MemoryFormat.KV_2LTD, i); w[k] = raw(o); futs.append(S.rb.submit_put_task(k, o))
    gs = [asyncio.run_coroutine_threadsafe(S.rb.connection.get(k), S.loop) for k in ks]; es = [asyncio.run_coroutine_threadsafe(S.rb.connection.exists(k), S.loop) for k in ks]
    bad = sum(1 for k, g in zip(ks, gs) if g.result(30) is None or raw(g.result()) != w[k]); ex = sum(e.result(30) for e in es)
    return bad == 0 and ex == 200, "bad=%d exist=%d" % (bad, ex)

# ---------------------------------------------------------------- concurrency: several real clients
NC = 4 if A.quick else 8
@step("concurrency: %d real clients x 25 put/exist/get of 256 KiB + shared hot key" % NC)
def _():
    hot = key(); S.put(hot, S.obj((2, 4, 64, 256), torch.bfloat16, MemoryFormat.KV_2LTD, 99)); hw = raw(S.get(hot)); errs = []
    def work(c):
        try:
            T = Stack(gb=0.2)
            for i in range(25):
                k = key(h=(c << 32) + i + (1 << 50)); o = T.obj((2, 4, 64, 256), torch.bfloat16, MemoryFormat.KV_2LTD, c * 100 + i); w = raw(o); T.put(k, o); o.ref_count_down()
                if not T.has(k): errs.append("exist"); continue
                g = T.get(k)
                if g is None or raw(g) != w: errs.append("bytes c%d i%d" % (c, i))
                if g is not None: g.ref_count_down()
                g = T.get(hot)
                if g is None or raw(g) != hw: errs.append("hot")
                if g is not None: g.ref_count_down()
            T.close()
        except Exception as e: errs.append("%s: %s" % (type(e).__name__, str(e)[:80]))
    ts = [threading.Thread(target=work, args=(c,)) for c in range(NC)]; [t.start() for t in ts]; [t.join(120) for t in ts]
    return not errs, "; ".join(errs[:3])
@step("sharing: value put by client A is read by client B (other connection)")
def _():
    k = key(); o = S.obj((2, 4, 64, 256), torch.bfloat16, MemoryFormat.KV_2LTD, 5); w = raw(o); S.put(k, o); assert S.has(k)
    T = Stack(gb=0.2); g = T.get(k); ok = g is not None and raw(g) == w; T.close(); return ok
@step("torn reads: 1 writer overwriting A/B patterns of 4 MiB, 3 readers see only whole values")
def _():
    k = key(torch.uint8); kb = k.to_string().encode().ljust(150); n = 4 << 20; stop = time.time() + (1.0 if A.quick else 3.0); torn = []; cnt = [0, 0]
    pats = [b"\xAA" * n, b"\x55" * n]
    def putf(p): return struct.pack("iiiiiiiii150s", 1, n, 0, 6, 0, n, 0, 0, 0, kb) + p
    s0 = socket.create_connection((A.host, A.port)); s0.sendall(putf(pats[0])); s0.sendall(frame(3, kb)); rx(s0, 36)
    def wr():
        i = 0
        while time.time() < stop: s0.sendall(putf(pats[i & 1])); s0.sendall(frame(3, kb)); rx(s0, 36); i += 1; cnt[0] += 1
    def rd():
        s = socket.create_connection((A.host, A.port))
        while time.time() < stop:
            s.sendall(frame(2, kb)); h = struct.unpack("9i", rx(s, 36)); d = rx(s, h[1]); cnt[1] += 1
            if d not in (pats[0], pats[1]): torn.append(1)
        s.close()
    ts = [threading.Thread(target=wr)] + [threading.Thread(target=rd) for _ in range(3)]; [t.start() for t in ts]; [t.join(30) for t in ts]; s0.close()
    return not torn, "writes=%d reads=%d torn=%d" % (cnt[0], cnt[1], len(torn))

# ---------------------------------------------------------------- raw probes
if not A.no_probes:
    kb = lambda: ("probe/%s@1@0@%x@half" % (RUN, next(_n))).encode()
    @step("probe: HEALTH reply is byte exact (200,0,1,2,0,0,0,0,0)")
    def _():
        with conn() as s: s.sendall(frame(5)); d = rx(s, 36)
        return d == OKR, d.hex()
    @step("probe: EXIST/GET miss reply is byte exact (400,0,1,2,0...) and no payload")
    def _():
        with conn(1) as s:
            k = kb(); s.sendall(frame(3, k)); a = rx(s, 36); s.sendall(frame(2, k)); b = rx(s, 36); s.sendall(frame(5)); c = rx(s, 36)
        return a == MISS and b == MISS and c == OKR
    @step("probe: EXIST hit byte exact; GET hit header echoes PUT meta, location always 0")
    def _():
        with conn() as s:
            k = kb(); s.sendall(frame(1, k, 10, 6, 7, 2, (1, 2, 5, 1)) + b"0123456789"); s.sendall(frame(3, k)); a = rx(s, 36); s.sendall(frame(2, k)); h = struct.unpack("9i", rx(s, 36)); d = rx(s, 10)
        return a == OKR and h == (200, 10, 6, 7, 1, 2, 5, 1, 0) and d == b"0123456789", str(h)
    @step("probe: PUT is not acknowledged (no bytes within 0.3 s)")
    def _():
        with conn(0.3) as s: s.sendall(frame(1, kb(), 3) + b"abc"); o = outcome(s)
        return o == "silent", o
    @step("probe: pipelined PUT,GET,EXIST,HEALTH,GET-miss in one segment answered in order")
    def _():
        with conn() as s:
            k = kb(); s.sendall(frame(1, k, 4, 1, 2, 0, (2, 1, 1, 1)) + b"abcd" + frame(2, k) + frame(3, k) + frame(5) + frame(2, kb())); d = rx(s, 36 + 4 + 36 * 3)
        return d[36:40] == b"abcd" and d[40:76] == OKR and d[76:112] == OKR and d[112:] == MISS
    @step("probe: header delivered 1 byte at a time")
    def _():
        with conn() as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for c in frame(5): s.sendall(bytes([c]))
            return rx(s, 36) == OKR
    @step("probe: reply header arrives in ONE recv(36) (client does not loop) x200")
    def _():
        k = kb(); bad = 0
        with conn() as s:
            s.sendall(frame(1, k, 65536) + b"z" * 65536)
            for _ in range(200):
                s.sendall(frame(2, k)); h = s.recv(36); bad += len(h) != 36; rx(s, 65536 + 36 - len(h))
        return bad == 0, "short=%d" % bad
    @step("probe: zero-length PUT stored, EXIST hit, GET length 0")
    def _():
        with conn() as s:
            k = kb(); s.sendall(frame(1, k, 0) + frame(3, k) + frame(2, k)); a = rx(s, 36); b = struct.unpack("9i", rx(s, 36))
        return a == OKR and b[:2] == (200, 0), str(b)
    @step("probe: key variants that Python treats as equal (hex case, 0x, leading zeros, blanks)")
    def _():
        b = "probe/%s" % RUN; n = next(_n) + 0xabc000
        with conn() as s:
            s.sendall(frame(1, ("%s@1@0@%x@half" % (b, n)).encode(), 3) + b"abc"); r = []
            for v in ("%s@1@0@%X@half", "%s@01@00@0%x@half", "%s@1@0@0x%x@half", "  %s@1@0@%x@half", "%s@ 1@0 @%x@half", "%s@+1@-0@%x@half"): s.sendall(frame(3, (v % (b, n)).encode())); r.append(rx(s, 36) == OKR)
        return all(r), str(r)
    @step("probe: LIST (cmd 4) on empty-ish input")
    def _():
        with conn(0.7) as s: s.sendall(frame(4)); o = outcome(s, 4096)
        return "INFO", o[:100] + "  (Python server: silent)"
    @step("robust: LIST answers something (client would hang forever otherwise)")
    def _():
        with conn(0.7) as s: s.sendall(frame(4)); o = outcome(s, 4096)
        return o != "silent", o[:60]
    for nm, fr in [("unknown command 6", lambda: frame(6)), ("command 0", lambda: frame(0)), ("unknown fmt 9", lambda: frame(2, None, 0, 9)), ("unknown dtype 9", lambda: frame(2, None, 0, 1, 9)), ("unknown location 3", lambda: frame(2, None, 0, 1, 2, 3)),
                   ("bad key (no @)", lambda: frame(2, b"nokey")), ("NUL padded key", lambda: struct.pack("iiiiiiiii150s", 2, 0, 1, 2, 0, 0, 0, 0, 0, b"m@1@0@ff@half")), ("invalid utf-8 key", lambda: frame(2, b"\xff\xfe@1@0@1@half")), ("key dtype float16", lambda: frame(2, b"m@1@0@ff@float16")), ("garbage 186 bytes", lambda: os.urandom(186))]:
        @step("probe: %s -> connection closed or error reply, server lives" % nm)
        def _(fr=fr):
            with conn(1) as s: s.sendall(fr()); o = outcome(s)
            return o in ("closed", "reset") or o.startswith("reply " + struct.pack("i", 400).hex()), o[:80] + (" alive" if alive() else " DEAD")
    @step("probe: header truncated then FIN -> nothing happens, server lives")
    def _():
        s = conn(1); s.sendall(frame(5)[:100]); s.shutdown(socket.SHUT_WR); o = outcome(s); s.close(); return o in ("closed", "reset") and alive(), o
    @step("robust: truncated PUT (client dies mid-value) must not create an entry")
    def _():
        k = kb(); s = conn(1); s.sendall(frame(1, k, 1000) + b"x" * 10); s.close(); time.sleep(.2)
        with conn(1) as s: s.sendall(frame(3, k)); r = rx(s, 36)
        return r == MISS, "EXIST says " + ("hit (poisoned)" if r == OKR else "miss")
    @step("robust: GET after truncated PUT must not kill the reader's connection")
    def _():
        k = kb(); s = conn(1); s.sendall(frame(1, k, 1000) + b"x" * 10); s.close(); time.sleep(.2)
        with conn(1) as s:
            s.sendall(frame(2, k)); h = struct.unpack("9i", rx(s, 36)); o = outcome(s, 1) if h[0] == 200 else "miss"
        return o == "miss", "code=%d len=%d then %s" % (h[0], h[1], o)
    @step("robust: truncated overwrite keeps the old value")
    def _():
        k = kb()
        with conn(1) as s: s.sendall(frame(1, k, 3) + b"old" + frame(3, k)); rx(s, 36)
        s = conn(1); s.sendall(frame(1, k, 1000) + b"x" * 10); s.close(); time.sleep(.2)
        with conn(1) as s: s.sendall(frame(2, k)); h = struct.unpack("9i", rx(s, 36)); d = rx(s, 3) if h[1] == 3 else b""
        return d == b"old", str(h[:2])
    @step("robust: negative PUT length rejected, never stored")
    def _():
        k = kb()
        with conn(1) as s: s.sendall(frame(1, k, -5)); time.sleep(.1)
        with conn(1) as s: s.sendall(frame(3, k)); r = rx(s, 36)
        return r == MISS and alive(), "stored" if r == OKR else "rejected"
    @step("robust: 2 GiB-1 declared length then FIN does not cost 2 GiB or kill the server")
    def _():
        s = conn(1); s.sendall(frame(1, kb(), 2**31 - 1) + b"x" * 100); s.close(); time.sleep(.2); return alive()
    @step("probe: client that never reads a 16 MiB GET does not block others")
    def _():
        k = kb(); n = 16 << 20
        s = conn(20); s.sendall(frame(1, k, n) + bytes(n)); s.sendall(frame(3, k)); rx(s, 36)
        stuck = [conn() for _ in range(4)]; [x.sendall(frame(2, k)) for x in stuck]; time.sleep(.2); t = time.time(); ok = alive(); dt = time.time() - t; [x.close() for x in stuck]; s.close(); return ok and dt < 1, "HEALTH in %.1f ms" % (dt * 1e3)
    @step("probe: 200 idle connections, new one still served")
    def _():
        c = [conn() for _ in range(200)]; t = time.time(); ok = alive(); dt = time.time() - t; [x.close() for x in c]; return ok, "%.1f ms" % (dt * 1e3)

# ---------------------------------------------------------------- bugs of the real client (server cannot fix; recorded)
if A.client_bugs:
    @step("clientbug: multi-group object through lm:// (client sends only group 0 shape)")
    def _():
        T = Stack(gb=0.2); k = key(); k2 = key()
        o = T.cpu.allocate([torch.Size((2, 4, 16, 64)), torch.Size((1, 2, 16, 32))], [torch.bfloat16, torch.uint8], MemoryFormat.KV_2LTD); T.put(k, o); T.put(k2, T.obj((2, 1, 4, 8), torch.bfloat16, MemoryFormat.KV_2LTD, 1))
        try: g = T.co(T.conn.get(k)); r = "get -> %s" % (None if g is None else (tuple(g.get_shape()), g.get_size(), "sent", o.get_size()))
        except Exception as e: r = "get -> %s: %s" % (type(e).__name__, e)
        try: r2 = T.co(T.conn.exists(k2))
        except Exception as e: r2 = "%s: %s" % (type(e).__name__, e)
        T.close(); return "INFO", "%s ; next exists() -> %s" % (r, r2)
    @step("clientbug: allocator exhausted on get -> payload not drained -> stream out of step")
    def _():
        T = Stack(gb=0.2); k = key(torch.uint8); o = T.obj((4096,), torch.uint8, MemoryFormat.EC_TD, 1); T.put(k, o)
        real = T.cpu.allocate; T.conn.local_cpu_backend.allocate = lambda *a, **b: None
        r = T.get(k); T.conn.local_cpu_backend.allocate = real
        try: r2 = T.co(T.conn.exists(k))
        except Exception as e: r2 = "%s: %s" % (type(e).__name__, e)
        T.close(); return "INFO", "get -> %s ; next exists() -> %s" % (r, r2)
f = sum(1 for r in rows if r[1] == "FAIL"); p = sum(1 for r in rows if r[1] == "PASS")
print("\n%d PASS, %d FAIL, %d INFO" % (p, f, len(rows) - p - f))
for r in rows:
    if r[1] == "FAIL": print("  FAIL", r[0], "|", r[2])
if A.json: json.dump(rows, open(A.json, "w"), indent=1)
sys.stdout.flush(); os._exit(min(f, 100))
