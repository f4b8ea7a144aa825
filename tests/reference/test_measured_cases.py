"""The cases whose damage lies in values, found with higher precision beside them alone; healthy programs stay without a warning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))
import harness
from samples import rest

pytestmark = pytest.mark.slow
KINDS = {f"silent:{kind}" for kind in ("underflow", "overflow", "zero-gradient", "lost-update", "downcast")} | {"clean"}


def measured() -> list:
    """One in four with damage; of the healthy programs one in eight, the repaired twins of collisions among them."""
    paths = [path for path in harness.find() if harness.load(path).expect in KINDS]
    healthy = [path for path in paths if harness.load(path).expect == "clean"]
    left = {*rest(8, healthy), *rest(4, [path for path in paths if path not in healthy])}
    return [pytest.param(path, marks=pytest.mark.exhaustive) if path in left else path for path in paths]


def name(path: Path) -> str:
    return path.relative_to(harness.HERE).with_suffix("").as_posix()


@pytest.mark.parametrize("path", measured(), ids=[name(getattr(p, "values", [p])[0]) for p in measured()])
def test_case_with_a_reference(path):
    if missing := harness.load(path).missing:
        pytest.skip(f"needs {', '.join(missing)}")
    fault = harness.judge(
        path,
        traced=True,
        flags=(
            "--precision",
            "reference",
        ),
    )
    assert not fault, fault
