"""The processes in which programs run: how long they may take, and what is told meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dtypetrace.repair import children


def test_a_run_tells_how_long_it_takes():
    told: list[float] = []
    status = children.run([sys.executable, "-c", "import time; time.sleep(1.4); raise SystemExit(3)"], 60, told.append)
    assert status == 3 and told and told == sorted(told)


@pytest.mark.parametrize("seconds", [0.0, 1.2])
def test_a_run_ends_with_its_time(seconds):
    for tell in (None, [].append):
        with pytest.raises(subprocess.TimeoutExpired):
            children.run([sys.executable, "-c", "import time; time.sleep(30)"], seconds, tell)
