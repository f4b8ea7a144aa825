"""The tests for accelerators, run on a stand-in: torch takes it for another device than the CPU, of which it is made.

In a process of its own: a device that was registered stays. docs/accelerators.md says what this shows and what it cannot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from filelock import FileLock
from standin import build

TESTS = Path(__file__).parent
ONLY_CUDA = {
    "test_device_memory_at_its_peak_and_time_of_a_half_unet_step",
    "test_its_own_texts_are_diagnosed[scaler]",
    "test_gradients_that_leave_their_range_wake_it_within_ten_steps[10000.0]",
    "test_gradients_that_leave_their_range_wake_it_within_ten_steps[inf]",
    "test_a_captured_graph_replays_as_without_a_trace",
    "test_several_streams_compute_as_without_a_trace",
    "test_compiled_training_computes_and_compiles_as_without_a_trace[default]",
    "test_compiled_training_computes_and_compiles_as_without_a_trace[reduce-overhead]",
}
ATTENTION = "test_fused_attention"


@pytest.mark.slow
@pytest.mark.skipif(build.compiler() is None, reason="needs a C++ compiler")
def test_the_tests_for_accelerators_pass_on_a_stand_in(tmp_path):
    # compiled once for all checkouts, where torch keeps what it compiles
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR", Path.home() / ".cache" / "torch_extensions")) / build.NAME
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        built = subprocess.run([sys.executable, build.__file__, str(folder)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    surroundings = {
        **{name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")},
        "DTYPETRACE_TEST_DEVICE": build.NAME,
        "DTYPETRACE_STANDIN": str(folder),
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "standin.plugin", "-p", "no:cacheprovider"]
    command += [f"--junitxml={tmp_path / 'done.xml'}", "test_gpu.py"]
    done = subprocess.run(command, cwd=TESTS, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    cases = ElementTree.parse(tmp_path / "done.xml").findall(".//testcase")
    skipped = {case.get("name") for case in cases if case.find("skipped") is not None}
    assert {name for name in skipped if not name.startswith(ATTENTION)} == ONLY_CUDA and len(cases) > 15
