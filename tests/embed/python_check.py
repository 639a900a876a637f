"""The Python package, as installed from its wheel, with torch and numpy."""

import asyncio
import gc
import subprocess
import sys
import threading
import unittest
import weakref

import numpy
import torch

import kvasir

TOKENS_PER_CHUNK = 4
SHAPE = (2, 2, TOKENS_PER_CHUNK, 8)


def make_client(dtype="float32", hidden=8, **more):
    layout = kvasir.Layout(dtype=dtype, layers=2, slots=TOKENS_PER_CHUNK, hidden=hidden)
    return kvasir.Client(model="m", layout=layout, **{"pool_bytes": 64 << 20, **more})


def tokens(count, first=0):
    return list(range(first, first + count * TOKENS_PER_CHUNK))


class RoundTrips(unittest.TestCase):
    def setUp(self):
        self.client = make_client()
        self.addCleanup(self.client.close)
        self.prompt = self.client.prompt(tokens(3))

    def test_torch_tensors_come_back(self):
        kv = [torch.randn(SHAPE) for _ in range(3)]
        self.assertEqual(self.client.lookup(self.prompt).chunks, 0)
        self.assertEqual(self.client.store(self.prompt, kv), (3, 3))
        self.assertEqual(self.client.store(self.prompt, kv), (0, 3))
        into = [torch.zeros(SHAPE) for _ in range(2)]
        self.assertEqual(self.client.load(self.prompt, into, first=1), (2, 0))
        self.assertTrue(torch.equal(into[0], kv[1]) and torch.equal(into[1], kv[2]))
        with self.client.lookup(self.prompt) as found:
            self.assertEqual((found.chunks, found.tokens), (3, 12))
            self.assertEqual(self.client.load(found, into), (2, 0))
            self.assertTrue(torch.equal(into[0], kv[0]))
        self.assertEqual(self.client.status()["read_leases"], 0)

    def test_numpy_arrays_come_back(self):
        kv = [numpy.random.rand(*SHAPE).astype(numpy.float32) for _ in range(3)]
        kv[0].flags.writeable = False  # Only read.
        self.assertEqual(self.client.store(self.prompt, kv).resident, 3)
        into = [numpy.zeros(SHAPE, numpy.float32) for _ in range(3)]
        self.assertEqual(self.client.load(self.prompt, into).chunks, 3)
        self.assertTrue(all((a == b).all() for a, b in zip(into, kv)))
        views = [numpy.from_dlpack(each) for each in self.client.lookup(self.prompt).view()]
        self.assertTrue(all((a == b).all() for a, b in zip(views, kv)))

    def test_tokens_come_as_any_integers(self):
        self.client.store(self.prompt, [torch.ones(SHAPE)])
        plain = tokens(1)
        for same in (
            tuple(plain),
            iter(plain),
            numpy.array(plain),
            numpy.array(plain, numpy.uint32),
            torch.tensor(plain),
            torch.tensor(plain, dtype=torch.int32),
        ):
            self.assertEqual(self.client.lookup(self.client.prompt(same)).chunks, 1)
        two_dimensions = torch.zeros(2, 2, dtype=torch.int64)
        for wrong in ([-1], [1 << 32], ["a"], torch.tensor([-1]), torch.zeros(4), two_dimensions):
            with self.assertRaises(kvasir.InvalidArgumentError):
                self.client.prompt(wrong)

    def test_prompts_grow(self):
        self.client.store(self.prompt, [torch.ones(SHAPE)] * 3)
        prompt = self.client.prompt(tokens(1)[:-1])
        self.assertEqual((prompt.chunks, prompt.tokens), (0, 3))
        prompt.extend(tokens(2))
        self.assertEqual(self.client.lookup(prompt).chunks, 2)

    def test_tenants_do_not_share(self):
        self.client.store(self.prompt, [torch.ones(SHAPE)])
        self.assertEqual(self.client.lookup(self.client.prompt(tokens(1), salt="t")).chunks, 0)

    def test_layers_come_back(self):
        layer = [[torch.randn(SHAPE[0], *SHAPE[2:]) for _ in range(2)] for _ in range(2)]
        store = self.client.begin_store(self.prompt, 0, 2)
        store.put(1, layer[1])
        with self.assertRaises(kvasir.InvalidArgumentError):
            self.client.begin_store(self.client.prompt(tokens(1, 100)), 0, 1).commit()
        store.put(0, layer[0])
        self.assertEqual(store.commit(), (2, 2))
        with self.assertRaises(kvasir.NotReservedError):
            store.put(0, layer[0])
        found = self.client.lookup(self.prompt)
        chunk = torch.from_dlpack(found.view()[1])
        self.assertTrue(torch.equal(chunk[:, 1], layer[1][1]))
        into = [torch.zeros_like(layer[0][0]) for _ in range(2)]
        self.client.load_layer(found, 0, into)
        self.assertTrue(torch.equal(into[1], layer[0][1]))


class Dtypes(unittest.TestCase):
    def test_all_of_torch_come_back(self):
        for dtype in (
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            torch.float8_e4m3fnuz,
            torch.float8_e5m2fnuz,
            torch.uint8,
            torch.int64,
            torch.bool,
            torch.uint16,
        ):
            with self.subTest(dtype=dtype), make_client(dtype) as client:
                kv = (torch.arange(128).reshape(SHAPE) % 2).to(torch.float32).to(dtype)
                prompt = client.prompt(tokens(1))
                self.assertEqual(client.store(prompt, [kv]).stored, 1)
                into = torch.empty_like(kv)
                self.assertEqual(client.load(prompt, [into]).chunks, 1)
                self.assertTrue(torch.equal(into.view(torch.uint8), kv.view(torch.uint8)))
                view = torch.from_dlpack(client.lookup(prompt).view()[0])
                self.assertEqual(view.dtype, dtype)
                self.assertTrue(torch.equal(view.view(torch.uint8), kv.view(torch.uint8)))

    def test_integers_stand_for_what_numpy_lacks(self):
        for dtype, integer in (("float8_e4m3fn", numpy.uint8), ("bfloat16", numpy.uint16)):
            with self.subTest(dtype=dtype), make_client(dtype) as client:
                kv = numpy.arange(128, dtype=integer).reshape(SHAPE)
                prompt = client.prompt(tokens(1))
                self.assertEqual(client.store(prompt, [kv]).stored, 1)
                into = numpy.zeros(SHAPE, integer)
                self.assertEqual(client.load(prompt, [into]).chunks, 1)
                self.assertTrue((into == kv).all())


class Views(unittest.TestCase):
    def test_a_hold_ends_with_its_tensor(self):
        with make_client() as client:
            prompt = client.prompt(tokens(2))
            client.store(prompt, [torch.ones(SHAPE), torch.full(SHAPE, 2.0)])
            found = client.lookup(prompt)
            views = [torch.from_dlpack(each) for each in found.view()]
            found.release()
            self.assertEqual(found.chunks, 0)
            self.assertEqual(client.status()["read_leases"], 2)
            part = views.pop()[1, 0]
            self.assertEqual(client.status()["read_leases"], 2)
            views.clear()
            self.assertEqual(client.status()["read_leases"], 1)
            self.assertTrue((part == 2).all())
            del part
            self.assertEqual(client.status()["read_leases"], 0)

    def test_a_view_outlives_its_client(self):
        client = make_client()
        prompt = client.prompt(tokens(1))
        client.store(prompt, [torch.full(SHAPE, 3.0)])
        found = client.lookup(prompt)
        tensor = torch.from_dlpack(found.view()[0])
        array = numpy.from_dlpack(found.view()[0])
        client.close()
        del client, prompt, found
        gc.collect()
        self.assertTrue((tensor == 3).all())
        self.assertTrue((array == 3).all())

    def test_numpy_cannot_write_a_view(self):
        with make_client() as client:
            prompt = client.prompt(tokens(1))
            client.store(prompt, [torch.ones(SHAPE)])
            view = numpy.from_dlpack(client.lookup(prompt).view()[0])
            with self.assertRaises(ValueError):
                view[0] = 0


class Errors(unittest.TestCase):
    def setUp(self):
        self.client = make_client()
        self.addCleanup(self.client.close)
        self.prompt = self.client.prompt(tokens(2))

    def refuse(self, error, array, text):
        good = torch.zeros(SHAPE)
        for ask in (self.client.store, self.client.load):
            with self.assertRaises(error) as raised:
                ask(self.prompt, [good, array])
            self.assertIn(text, str(raised.exception))

    def test_arrays_that_are_no_chunks_are_refused(self):
        mismatch, invalid = kvasir.LayoutMismatchError, kvasir.InvalidArgumentError
        self.refuse(mismatch, torch.zeros(SHAPE, dtype=torch.float64), "array 1 is of float64, not")
        self.refuse(mismatch, numpy.zeros(SHAPE, numpy.int32), "array 1 is of int32, not float32")
        self.refuse(mismatch, torch.zeros(2, 2, 8, 4), "of shape [2, 2, 8, 4], not [2, 2, 4, 8]")
        self.refuse(mismatch, torch.zeros(128), "of shape [128], not")
        self.refuse(invalid, torch.zeros(2, 2, 8, 4).transpose(2, 3), "is not contiguous")
        self.refuse(invalid, torch.zeros(SHAPE, device="meta"), "array 1 ")
        self.refuse(invalid, "text", "no array")
        self.refuse(invalid, None, "no array")
        self.assertEqual(self.client.lookup(self.prompt).chunks, 0)

    def test_nothing_is_loaded_into_what_is_read_only(self):
        frozen = numpy.zeros(SHAPE, numpy.float32)
        frozen.flags.writeable = False
        with self.assertRaises(kvasir.InvalidArgumentError):
            self.client.load(self.prompt, [frozen])

    def test_errors_have_codes(self):
        with self.assertRaises(kvasir.Error) as raised:
            self.client.store(self.prompt, [torch.zeros(SHAPE)] * 3)
        self.assertEqual(raised.exception.code, kvasir.Code.INVALID_ARGUMENT)
        self.assertIn("2 chunks", str(raised.exception))
        self.assertIsInstance(raised.exception, ValueError)
        with self.assertRaises(kvasir.InvalidArgumentError):
            self.client.lookup(self.prompt, timeout=0)
        with self.assertRaises(kvasir.InvalidArgumentError):
            self.client.lookup(self.prompt, timeout=float("nan"))
        with self.assertRaises(kvasir.InvalidArgumentError):
            self.client.prompt([1], salt="s" * 129)
        with self.assertRaises(kvasir.InvalidArgumentError):
            self.client.lookup(make_client().prompt(tokens(1)))

    def test_what_cannot_be_served_is_refused(self):
        with self.assertRaises(kvasir.TooLargeError):
            make_client(pool_bytes=1)
        with self.assertRaises(kvasir.IoError):
            make_client(pool_bytes=1 << 60)
        with self.assertRaises(kvasir.InvalidArgumentError):
            make_client(dtype="complex64")
        with self.assertRaises(kvasir.InvalidArgumentError):
            make_client(eviction="random")
        with self.assertRaises(kvasir.Error):
            make_client(node="/nowhere/kvasird.sock")

    def test_a_closed_client_refuses(self):
        self.client.close()
        self.client.close()
        with self.assertRaises(kvasir.CancelledError):
            self.client.lookup(self.prompt)


class Keeper:
    """Keeps a client's only copying thread busy, with Python that waits, until released."""

    def __init__(self, client, prompt, arrays, last=lambda: None):
        self._entered, self._released = threading.Event(), threading.Event()
        main = threading.current_thread()
        while True:
            self._entered.clear()
            elsewhere = False

            def done():
                nonlocal elsewhere
                elsewhere = threading.current_thread() is not main
                self._entered.set()
                if elsewhere:
                    self._released.wait(60)
                    last()

            call = client._client.begin_load(prompt, arrays, 0, 60_000)
            call.then(done)
            assert self._entered.wait(60)
            if elsewhere:
                self._call = call
                return

    def release(self):
        self._released.set()
        self._call.wait()


class Waiting(unittest.TestCase):
    """Chunks of 1 MiB, which the copying thread copies."""

    def setUp(self):
        self.client = make_client("uint8", hidden=65536, copy_threads=1)
        self.addCleanup(self.client.close)
        self.prompt = self.client.prompt(tokens(2))
        self.shape = (2, 2, TOKENS_PER_CHUNK, 65536)
        self.kv = [torch.full(self.shape, i + 1, dtype=torch.uint8) for i in range(2)]
        self.client.store(self.prompt, self.kv)

    def room(self, count=2):
        return [torch.zeros(self.shape, dtype=torch.uint8) for _ in range(count)]

    def test_a_timeout_passes(self):
        keeper = Keeper(self.client, self.prompt, self.room())
        try:
            with self.assertRaises(kvasir.TimedOutError) as raised:
                self.client.load(self.prompt, self.room(), timeout=0.001)
            self.assertIsInstance(raised.exception, TimeoutError)
        finally:
            keeper.release()

    def test_a_cancelled_task_ends_its_call(self):
        keeper = Keeper(self.client, self.prompt, self.room())

        async def run():
            task = asyncio.ensure_future(self.client.load_async(self.prompt, self.room()))
            await asyncio.sleep(0)  # It has begun.
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.client.load_async(self.prompt, self.room()), 0.001)

        try:
            asyncio.run(run())
        finally:
            keeper.release()
        self.assertEqual(self.client.status()["read_leases"], 0)

    def test_a_call_that_nobody_wants_is_ended(self):
        keeper = Keeper(self.client, self.prompt, self.room())
        try:
            call = self.client._client.begin_load(self.prompt, self.room(), 0, 60_000)
            self.assertFalse(call.ready())
            del call
        finally:
            keeper.release()
        self.assertEqual(self.client.status()["read_leases"], 0)

    def test_garbage_collected_in_a_done_keeps_its_arrays(self):
        calls = []
        keeper = Keeper(self.client, self.prompt, self.room(), last=calls.clear)
        room = self.room()
        alive = weakref.ref(room[0])
        calls.append(self.client._client.begin_load(self.prompt, room, 0, 60_000))
        del room
        keeper.release()
        self.assertEqual(calls, [])
        self.assertIsNotNone(alive())
        while alive() is not None:  # Until the next call after it has ended.
            self.assertEqual(self.client.lookup(self.prompt).chunks, 2)
        self.assertEqual(self.client.status()["read_leases"], 0)

    def test_tasks_wait_beside_each_other(self):
        async def one(number):
            prompt = self.client.prompt(tokens(2, 1000 * (number % 5)))
            await self.client.store_async(prompt, self.kv)
            into = self.room()
            loaded = await self.client.load_async(prompt, into)
            found = await self.client.lookup_async(prompt)
            return loaded.chunks == found.chunks == 2 and torch.equal(into[1], self.kv[1])

        async def run():
            results = await asyncio.gather(*(one(number) for number in range(20)))
            store = await self.client.begin_store_async(self.client.prompt(tokens(1, 7777)), 0, 1)
            layer = torch.ones(2, TOKENS_PER_CHUNK, 65536, dtype=torch.uint8)
            await asyncio.gather(store.put_async(0, [layer]), store.put_async(1, [layer]))
            return results + [(await store.commit_async()).stored == 1]

        self.assertTrue(all(asyncio.run(run())))

    def test_threads_wait_beside_each_other(self):
        failures = []

        def run(number):
            try:
                for turn in range(20):
                    prompt = self.client.prompt(tokens(2, 1000 * ((number + turn) % 6)))
                    self.client.store(prompt, self.kv)
                    into = self.room()
                    loaded = self.client.load(prompt, into)
                    if loaded.chunks and not torch.equal(into[0], self.kv[0]):
                        failures.append("other bytes")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(120)
        self.assertEqual(failures, [])

    def test_closing_ends_what_waits(self):
        keeper = Keeper(self.client, self.prompt, self.room())
        errors = []

        def run():
            try:
                self.client.load(self.prompt, self.room(), timeout=60)
            except kvasir.CancelledError as error:
                errors.append(error)

        call = self.client._client.begin_load(self.prompt, self.room(), 0, 60_000)
        waiting = threading.Thread(target=run)
        waiting.start()
        closing = threading.Thread(target=self.client.close)
        closing.start()
        call.wait()  # Ended by the close, while that waits for the copying thread.
        with self.assertRaises(kvasir.CancelledError):
            call.result()
        waiting.join(60)
        keeper.release()
        closing.join(60)
        self.assertFalse(waiting.is_alive() or closing.is_alive())
        self.assertEqual(len(errors), 1)


class Exit(unittest.TestCase):
    def test_a_process_ends_with_everything_left_behind(self):
        script = (
            "import asyncio, torch, kvasir\n"
            "layout = kvasir.Layout(dtype='uint8', layers=2, slots=4, hidden=65536)\n"
            "client = kvasir.Client(model='m', layout=layout, pool_bytes=64 << 20)\n"
            "prompt = client.prompt(range(8))\n"
            "kv = [torch.ones(2, 2, 4, 65536, dtype=torch.uint8)] * 2\n"
            "client.store(prompt, kv)\n"
            "views = [torch.from_dlpack(each) for each in client.lookup(prompt).view()]\n"
            "room = [torch.zeros_like(each) for each in kv]\n"
            "calls = [client._client.begin_load(prompt, room, 0, 5000) for _ in range(50)]\n"
            "[call.then(lambda: None) for call in calls]\n"
        )
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120)
        self.assertEqual((ended.returncode, ended.stderr), (0, b""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
