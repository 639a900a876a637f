"""Rows of a client check: printed as they come, counted, each step guarded against exceptions."""

import traceback


class Checklist:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, ok, detail=""):
        self.passed += bool(ok)
        self.failed += not ok
        print(f"{'PASS' if ok else 'FAIL'} {name}" + (f"  [{detail}]" if detail != "" else ""), flush=True)
        return ok

    def step(self, function, *arguments):
        """Runs one step; what it throws is a failed row, and the next step follows."""
        try:
            return function(*arguments)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = next(
                (frame.lineno for frame in reversed(traceback.extract_tb(error.__traceback__))
                 if frame.filename == function.__code__.co_filename), place.lineno)
            self.check(f"{function.__name__} line {where}", False, f"{type(error).__name__}: {str(error)[:200]}")
            return None

    def status(self):
        """Prints the sum; the exit status is the number of failed rows, at most 100."""
        print(f"RESULT {self.passed} passed, {self.failed} failed", flush=True)
        return min(self.failed, 100)
