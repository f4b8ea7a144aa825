"""The comparison of PyTorch's own tests, plain and traced: it finds what differs, and a sample of them ends the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).parents[1]


def compared(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "tools.torch_tests", str(folder), *arguments], ROOT)


VERDICTS = """
import os, time, unittest
import torch
from torch.nn.modules import module
from torch.testing._internal.common_utils import a_decorator_of_another_version, A_FLAG_OF_ANOTHER_VERSION

class Tests(unittest.TestCase):
    def test_same(self):
        self.assertFalse(A_FLAG_OF_ANOTHER_VERSION)
        torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    @a_decorator_of_another_version
    def test_fails_the_same(self):
        torch.ones(2) @ torch.ones(2).half()
    def test_skips(self):
        self.skipTest("here")
    def test_counts_modes(self):
        self.assertEqual(torch._C._len_torch_dispatch_stack(), 0)
    def test_counts_our_hooks(self):
        self.assertEqual(len(module._global_forward_hooks), 0)
    def test_is_unstable(self):
        self.assertEqual(os.getpid(), 1, os.getpid())
    def test_dies_under_a_trace(self):
        if len(module._global_forward_hooks):
            os.abort()
"""


def test_each_difference_gets_its_verdict(tmp_path):
    (tmp_path / "verdicts.py").write_text(VERDICTS)
    done = compared(tmp_path, "verdicts.py", "not_there.py", "--options", "plain")
    said = {
        name: verdict
        for verdict, name in re.findall(r"^(\w[\w ]*?) +plain +verdicts\.Tests\.test_(\w+)", done.stdout, re.M)
    }
    assert said == {
        "counts_modes": "any mode",
        "counts_our_hooks": "different",
        "is_unstable": "unstable",
        "dies_under_a_trace": "different",
    }, done.stdout + done.stderr
    assert "died" in done.stdout and "signal 6" in done.stdout
    assert "A_FLAG_OF_ANOTHER_VERSION, a_decorator_of_another_version" in done.stdout
    assert "not_there.py: not there" in done.stdout
    assert "2 same" in done.stdout and "1 skipped" in done.stdout
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "options"),
    [(4, "plain,numerics,autofix,reference")]
    + [pytest.param(75, o, marks=pytest.mark.exhaustive) for o in ("plain", "numerics", "autofix", "reference")],
)
def test_a_sample_of_torchs_own_tests_ends_the_same(most, options):
    """Some of the tests that the installed torch brings, with each kind of trace."""
    done = compared(ROOT / "tests" / "torch_own", "sample.py", "--most", str(most), "--options", options)
    same = re.search(r"^all: .*?(\d+) same", done.stdout, re.M)
    wanted = 0.85 * most * len(options.split(","))
    assert done.returncode == 0 and same and int(same[1]) >= wanted, done.stdout + done.stderr
    assert "different" not in done.stdout and "cannot be imported" not in done.stdout


def test_a_folder_that_is_not_there_is_said_in_a_line(tmp_path):
    done = compared(tmp_path / "none")
    assert done.returncode == 2 and done.stderr.splitlines()[-1].endswith("none: no such folder")
