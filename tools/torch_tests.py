"""Runs PyTorch's own test files plain and traced, each test in a process of its own, and compares how they end.

    python -m tools.torch_tests FOLDER [FILE ...] [-k PART] [--options plain,numerics,autofix,reference] [--most N]

FOLDER is the folder ``test`` of a checkout of PyTorch, best at the tag of the installed version; it is not part of
this project. Compared are the outcome (passed, failed, skipped) and the type and text of each error. A test that ends
otherwise under a trace is run plain again, and inside an empty function mode and an empty dispatch mode. Then it is

    unstable    two plain runs do not end the same
    any mode    the empty modes change it in the same way: torch, not dtypetrace
    accepted    a row of tools/torch_tests_accepted.json, which has the reason
    different   everything else; then the exit status is 1
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import re
import select
import signal
import sys
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stderr, redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "numerics": {"numerics": True},
    "autofix": {"autofix": True},
    "reference": {"reference": True},
}
ACCEPTED = Path(__file__).with_name("torch_tests_accepted.json")
FILES = (
    "test_autograd.py",
    "test_torch.py",
    "test_nn.py",
    "test_modules.py",
    "test_type_promotion.py",
    "test_view_ops.py",
    "test_overrides.py",
    "test_python_dispatch.py",
    "nn/test_module_hooks.py",
    "nn/test_parametrization.py",
    "nn/test_convolution.py",
    "nn/test_dropout.py",
    "nn/test_embedding.py",
    "nn/test_lazy_modules.py",
    "nn/test_load_state_dict.py",
    "nn/test_multihead_attention.py",
    "nn/test_packed_sequence.py",
    "nn/test_pooling.py",
    "nn/test_pruning.py",
    "optim/test_optim.py",
    "optim/test_swa_utils.py",
    "autograd/test_functional.py",
    "test_autocast.py",
)
"""What is run where no file is named: what a dtype debugger touches."""
LONGEST = 60.0
"""Seconds for one test."""
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d{9,}\b|\b\d+\.\d+ ?(?:s|ms|us|seconds)\b|/tmp/\S+")
"""What differs between any two runs: addresses, identities, durations, temporary files."""


class Outcome(unittest.TestResult):
    """How one test ended, as a list of (what, text); a subtest adds one more."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[list[str]] = []

    def _add(self, what: str, error: Any = None) -> None:
        text = f"{error[0].__name__}: {error[1]}" if isinstance(error, tuple) else str(error or "")
        self.ends.append([what, _ADDRESS.sub("…", text)])

    def addSuccess(self, test: Any) -> None:
        self._add("passed")

    def addFailure(self, test: Any, err: Any) -> None:
        self._add("failed", err)

    def addError(self, test: Any, err: Any) -> None:
        self._add("failed", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self._add("skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._add("failed as expected", err)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._add("passed unexpectedly")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._add("failed", err)


def empty_modes() -> AbstractContextManager[Any]:
    """A function mode and a dispatch mode that do nothing: what every trace is at least."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    both = ExitStack()
    both.enter_context(Functions())
    both.enter_context(Operators())
    return both


def watched_by(option: str) -> Callable[[], AbstractContextManager[Any]]:
    """What a test runs in: nothing, the empty modes, or a trace with an option."""
    if option in ("", "again"):
        return nullcontext
    if option == "empty":
        return empty_modes
    import dtypetrace

    return lambda: dtypetrace.trace(**OPTIONS[option])


def run_one(test: unittest.TestCase, option: str) -> list[list[str]]:
    """Runs one test here, its ``setUp`` and ``tearDown`` included, and returns how it ended."""
    import random

    import torch

    random.seed(0)
    torch.manual_seed(0)
    outcome = Outcome()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with watched_by(option)():
                test.run(outcome)
        except BaseException as error:
            outcome._add("escaped", (type(error), error, None))
    return outcome.ends


def in_child(test: unittest.TestCase, option: str) -> list[list[str]]:
    """Runs one test in a forked process: what it breaks, or how it dies, concerns no other one."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            os.setpgid(0, 0)
            devnull = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(devnull, number)
            with os.fdopen(write, "w", encoding="utf-8", errors="replace") as out:
                json.dump(run_one(test, option), out)
        finally:
            os._exit(0)
    os.close(write)
    text, end = b"", time.monotonic() + LONGEST
    while select.select([read], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(read, 1 << 16)
        if not piece:
            break
        text += piece
    else:
        os.kill(child, signal.SIGKILL)
        text = json.dumps([["died", f"took longer than {LONGEST:.0f} s"]]).encode()
    os.close(read)
    _, status = os.waitpid(child, 0)
    try:
        found: list[list[str]] = json.loads(text)
    except ValueError:
        found = [["died", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"]]
    return found


class Absent:
    """A name that test files of another version import: as a decorator it changes nothing, as a flag it is off."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __bool__(self) -> bool:
        return False


def add_absent_names(names: set[str]) -> None:
    """Lets torch's test utilities have every name; ``names`` receives those that the installed version lacks."""
    from torch.testing._internal import common_cuda, common_device_type, common_methods_invocations, common_utils

    for module in (common_cuda, common_device_type, common_methods_invocations, common_utils):

        def absent(name: str) -> Absent:
            if name.startswith("__"):
                raise AttributeError(name)
            names.add(name)
            return Absent()

        vars(module)["__getattr__"] = absent


def tests_of(file: Path, part: str) -> Iterator[unittest.TestCase]:
    """The tests of one file whose names contain a part."""
    sys.path[:0] = [str(file.parent)]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    sys.argv[1:] = []  # torch's test utilities read the command line
    spec.loader.exec_module(module)
    waiting: list[Any] = [unittest.defaultTestLoader.loadTestsFromModule(module)]
    while waiting:
        test = waiting.pop(0)
        if isinstance(test, unittest.TestSuite):
            waiting[:0] = list(test)
        elif part in test.id():
            yield test


def reason_for(name: str, option: str, accepted: list[dict[str, str]]) -> str:
    """Why a difference is accepted; empty if it is not."""
    for row in accepted:
        if fnmatchcase(name, row["test"]) and option in row.get("options", option).split(","):
            return row["reason"]
    return ""


def judged(
    test: unittest.TestCase, option: str, plain: list[list[str]], accepted: list[dict[str, str]]
) -> tuple[str, str]:
    """The verdict on one test under one option, and for a difference what differs."""
    traced = in_child(test, option)
    if traced == plain:
        return "same", ""
    if in_child(test, "again") != plain:
        return "unstable", ""
    if in_child(test, "empty") == traced:
        return "any mode", ""
    if in_child(test, option) == plain:
        return "unstable", ""
    reason = reason_for(test.id(), option, accepted)
    if reason:
        return "accepted", reason
    return "different", f"plain:  {plain}\n      traced: {traced}"


def compare(file: Path, options: list[str], part: str, most: int | None) -> Counter[str]:
    """Runs the tests of a file, prints each difference, and counts verdicts and plain outcomes."""
    accepted = json.loads(ACCEPTED.read_text("utf-8"))
    counts: Counter[str] = Counter()
    absent: set[str] = set()
    add_absent_names(absent)
    try:
        tests = list(tests_of(file, part))
        tests = tests[:: -(-len(tests) // most)] if most and tests else tests
        if absent:
            print(f"{file.name}: of another version, without {', '.join(sorted(absent))}", flush=True)
    except BaseException as error:
        print(f"{file.name}: cannot be imported: {type(error).__name__}: {error}".splitlines()[0], flush=True)
        return counts
    ended_plain = [in_child(test, "") for test in tests]  # before dtypetrace is imported here
    for option in options:
        with watched_by(option)():
            pass  # imports what the children would each import
    for test, plain in zip(tests, ended_plain):
        counts["tests"] += 1
        if {what for what, _ in plain} == {"skipped"}:
            counts["skipped"] += 1
            continue
        if any(what != "passed" for what, _ in plain):
            counts["not passed plain"] += 1
        for option in options:
            verdict, text = judged(test, option, plain, accepted)
            counts[verdict] += 1
            if verdict != "same":
                print(f"{verdict:10} {option:10} {test.id()}" + (f"\n      {text}"[:1500] if text else ""), flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder test of a checkout of PyTorch")
    parser.add_argument("files", nargs="*", default=list(FILES), metavar="FILE")
    parser.add_argument("-k", dest="part", default="", help="only tests whose name contains this")
    parser.add_argument("--options", default=",".join(OPTIONS), help="the kinds of trace (%(default)s)")
    parser.add_argument("--most", type=int, help="at most so many tests of each file, evenly chosen")
    options = parser.parse_args()
    chosen = options.options.split(",")
    if not options.folder.is_dir():
        parser.error(f"{options.folder}: no such folder")
    if unknown := set(chosen) - set(OPTIONS):
        parser.error(f"unknown kind of trace: {', '.join(sorted(unknown))}")
    total: Counter[str] = Counter()
    for name in options.files:
        file = options.folder / name
        if not file.is_file():
            print(f"{name}: not there", flush=True)
            continue
        read, write = os.pipe()
        if not (child := os.fork()):  # each file's module is imported in a process of its own
            os.close(read)
            with os.fdopen(write, "w") as out:
                json.dump(compare(file, chosen, options.part, options.most), out)
            sys.stdout.flush()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        counts = Counter(json.loads(text or '{"died": 1}'))
        total += counts
        print(f"{name}: {', '.join(f'{n} {what}' for what, n in counts.items()) or 'nothing ran'}", flush=True)
    print(f"all: {', '.join(f'{n} {what}' for what, n in total.items())}")
    return int(bool(total["different"] or total["died"]))


if __name__ == "__main__":
    sys.exit(main())
