#!/usr/bin/env python3
"""Tests of the benchmark's own programs: smoke_test.py BIN_DIR."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cells
import mp_suite
import report
from servers import ServerError, find_targets

BIN_DIR = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else Path("build/dev/bin")
HERE = Path(__file__).resolve().parent


def load(port, *arguments):
    command = [str(BIN_DIR / "lm_load"), "--port", str(port), "--secs", "0.05", "--warmup", "0",
               *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


class NullServer(unittest.TestCase):
    def setUp(self):
        logs = tempfile.TemporaryDirectory()
        self.addCleanup(logs.cleanup)
        targets, _ = find_targets(["null"], BIN_DIR, BIN_DIR / "kvasird", [], "python", "1GiB")
        self.server = targets["null"].start(Path(logs.name))
        self.addCleanup(self.server.process.stdout.close)
        self.addCleanup(self.server.stop)

    def test_every_operation_is_measured(self):
        for arguments in (["--op", "put", "--connections", "3"], ["--op", "get"],
                          ["--op", "exist", "--depth", "100", "--idle", "20"],
                          ["--op", "put", "--split", "--keys", "2"]):
            with self.subTest(arguments):
                done = load(self.server.port, "--check", "length", "--size", "4KiB", *arguments)
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads(done.stdout)
                self.assertGreater(result["ops"], 0)
                self.assertEqual(result["bad"], 0)
                self.assertLessEqual(result["p50_us"], result["p99_us"])

    def test_a_value_that_was_not_stored_is_found(self):
        # The null server answers with bytes that nobody stored: a planted fault.
        for operation in ("get", "put"):
            done = load(self.server.port, "--op", operation, "--size", "64KiB")
            self.assertEqual(done.returncode, 3)
            self.assertGreater(json.loads(done.stdout)["bad"], 0)

    def test_a_fill_counts_what_was_kept(self):
        done = load(self.server.port, "--op", "fill", "--objects", "1000")
        self.assertEqual(json.loads(done.stdout)["kept"], 1000)

    def test_a_lost_server_is_an_error_and_no_figure(self):
        self.server.process.kill()
        self.server.process.wait()
        done = load(self.server.port, "--op", "put")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")

    def test_contradictory_options_are_refused(self):
        for arguments in (["--op", "get", "--split"], ["--op", "put", "--depth", "2"],
                          ["--op", "fill"], ["--op", "put", "--size", "65"],
                          ["--op", "put", "--size", "256MiB", "--connections", "2"]):
            with self.subTest(arguments):
                self.assertEqual(load(self.server.port, *arguments).returncode, 1)


def mp_load(port, *arguments):
    command = [str(BIN_DIR / "mp_load"), "--port", str(port), "--secs", "0.05", "--warmup", "0",
               "--size", "32KiB", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


class MpServers(unittest.TestCase):
    def start(self, name):
        logs = tempfile.TemporaryDirectory()
        self.addCleanup(logs.cleanup)
        targets, missing = mp_suite.find_targets([name], BIN_DIR, BIN_DIR / "kvasird", [],
                                                 "python", "64MiB")
        self.assertEqual(missing, {})
        server = targets[name].start(Path(logs.name))
        self.addCleanup(server.process.stdout.close)
        self.addCleanup(server.stop)
        return server

    def check(self, done):
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        result = json.loads(done.stdout)
        self.assertGreater(result["ops"], 0)
        self.assertLessEqual(result["p50_us"], result["p99_us"])

    def test_every_operation_is_measured(self):
        for name, transfer in (("kvasird", "shm"), ("kvasird-inline", "inline")):
            server = self.start(name)
            for arguments in (["ping"], ["miss", "--tokens", "1000", "--clients", "3"], ["hit"],
                              ["store", "--transfer", transfer, "--clients", "2"],
                              ["retrieve", "--transfer", transfer, "--clients", "2"],
                              ["retrieve", "--first-touch"]):
                with self.subTest(name=name, arguments=arguments):
                    self.check(mp_load(server.port, "--op", *arguments))

    def test_the_echo_answers_what_has_no_chunks(self):
        server = self.start("echo")
        for operation in ("ping", "miss", "hit"):
            with self.subTest(operation):
                self.check(mp_load(server.port, "--echo", "--op", operation, "--clients", "2"))

    def test_an_echo_is_not_taken_for_a_server(self):
        done = mp_load(self.start("echo").port, "--op", "hit")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_another_transfer_than_asked_for_is_an_error(self):
        done = mp_load(self.start("kvasird").port, "--op", "store", "--transfer", "inline")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_a_lost_server_is_an_error_and_no_figure(self):
        server = self.start("echo")
        server.process.kill()
        server.process.wait()
        done = mp_load(server.port, "--echo", "--op", "ping", "--timeout", "1")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_contradictory_options_are_refused(self):
        for arguments in (["--op", "store", "--echo"], ["--op", "nothing"],
                          ["--op", "ping", "--size", "256MiB", "--clients", "3"]):
            with self.subTest(arguments):
                self.assertEqual(mp_load(1, *arguments).returncode, 1)


class Summary(unittest.TestCase):
    def test_every_target_takes_every_place_in_the_order(self):
        orders = [cells.rotated(["a", "b", "c"], index) for index in range(3)]
        for place in range(3):
            self.assertEqual({order[place] for order in orders}, {"a", "b", "c"})

    def test_a_ratio_pairs_runs_of_the_same_round_only(self):
        rounds = {"kvasird": [{"rate": 2}, None, {"rate": 9}],
                  "null": [{"rate": 1}, {"rate": 5}, {"rate": 3}]}
        self.assertEqual(cells.ratios_of(rounds)["kvasird/null"],
                         {"median": 2.5, "min": 2, "max": 3, "pairs": 2})

    def test_a_target_that_failed_in_every_round_is_a_dash_in_the_table(self):
        self.assertEqual(report.rate_entry({"rate": None, "p50_us": None, "bad": 0}), "–")

    def test_a_server_that_ends_before_it_is_ready_is_reported(self):
        with tempfile.TemporaryDirectory() as logs:
            targets, _ = find_targets(["kvasird"], BIN_DIR, "/bin/false", [], "python", "1GiB")
            with self.assertRaisesRegex(ServerError, "status 1 before it was ready"):
                targets["kvasird"].start(Path(logs))


class WholeRun(unittest.TestCase):
    def test_a_quick_run_reports_its_cell(self):
        with tempfile.TemporaryDirectory() as out:
            file = Path(out) / "result.json"
            subprocess.run([str(HERE / "run.py"), "--quick", "--targets", "null", "--cells",
                            "get-64KiB-c1$", "--bin-dir", str(BIN_DIR), "--out", str(file)],
                           check=True, capture_output=True, timeout=120)
            printed = subprocess.run([str(HERE / "run.py"), "--markdown", str(file)], check=True,
                                     capture_output=True, text=True, timeout=60).stdout
        self.assertIn("| get-64KiB-c1 | MB/s | **", printed)

    def test_a_quick_run_of_the_mp_suite_reports_its_cells(self):
        done = subprocess.run([str(HERE / "run.py"), "mp", "--quick", "--targets", "echo,memcpy",
                               "--cells", "^ping-c1$|^shm-store-32MiB-c1$", "--bin-dir",
                               str(BIN_DIR)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {cell["name"]: list(cell["targets"]) for cell in json.loads(done.stdout)["cells"]}
        self.assertEqual(found, {"ping-c1": ["echo"], "shm-store-32MiB-c1": ["memcpy"]})


if __name__ == "__main__":
    unittest.main()
