"""What a user's completion shows, and what a finding, a report and an error offer in Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dtypetrace
from dtypetrace import errors
from dtypetrace.tables import dtypes

GOLDEN = Path(__file__).with_name("public_names.txt")


@pytest.fixture(scope="module")
def traced():
    weight = torch.ones(2, 2, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        torch.ones(1, 2) @ weight
    return t


def test_the_names_that_completion_shows(traced, tmp_path):
    traced.save(tmp_path / "run.trace")
    shown = {
        "dtypetrace": dir(dtypetrace),
        "dtypetrace.errors": [n for n, value in sorted(vars(errors).items()) if isinstance(value, type)],
        "Trace": dir(traced),
        "SavedTrace": dir(dtypetrace.load(tmp_path / "run.trace")),
        "Finding": [n for n in dir(traced.findings[0]) if not n.startswith("_")],
    }
    assert "".join(f"{of}: {' '.join(names)}\n" for of, names in shown.items()) == GOLDEN.read_text("utf-8")


def test_every_name_is_there_and_documented(traced):
    for name in dir(dtypetrace):
        assert getattr(dtypetrace, name).__doc__, name
    for name in dir(traced):
        assert hasattr(traced, name), name


def test_types_and_errors_load_no_torch():
    names = [n for n in dir(dtypetrace) if n not in ("Trace", "trace", "preflight", "retrain_lora", "RetrainingResult")]
    code = f"import sys, dtypetrace\n[getattr(dtypetrace, n) for n in {names}]\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_finding_says_what_and_where_in_one_line(traced):
    (found,) = traced.findings
    assert (found.file, found.line) == (__file__, traced.findings[0].site.line)
    assert str(found) == f"{Path(__file__).name}:{found.line}: error[DT101]: {found.title}"
    assert repr(found) == f"<Finding {found}>"
    assert found.to_dict() == json.loads(json.dumps(found.to_dict())) == json.loads(traced.to_json())["findings"][0]


def test_to_json_returns_or_writes(traced, tmp_path):
    assert traced.to_json(tmp_path / "report.json") is None
    assert (tmp_path / "report.json").read_text("utf-8") == traced.to_json()


def test_every_error_has_one_base():
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    assert len(kinds) > 5 and all(issubclass(kind, dtypetrace.DtypetraceError) for kind in kinds)
    with pytest.raises(dtypetrace.DtypetraceError):
        dtypetrace.explain("DT999")
    with pytest.raises(dtypetrace.DtypetraceError):
        dtypetrace.load(__file__)


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in dtypes.DTYPES if hasattr(torch, name)])
def test_a_dtype_of_torch_is_understood(dtype):
    name = str(dtype).removeprefix("torch.")
    assert dtypes.parse(dtype) == dtypes.parse(str(dtype)) == dtypes.parse(name) == dtypes.parse(name.upper()) == name


def test_the_second_names_are_those_of_torch_and_of_trainers():
    for short, name in dtypes.ALIASES.items():
        if hasattr(torch, short):
            assert getattr(torch, short) is getattr(torch, name)
        assert dtypes.parse(short) == name
    assert [dtypes.parse(given) for given in ("bf16", " BF16", "fp16", "torch.half", "f32")] == [
        "bfloat16", "bfloat16", "float16", "float16", "float32"
    ]  # fmt: skip
    with pytest.raises(errors.UnknownDtypeError, match="'bfloat' is no dtype; did you mean bfloat16?"):
        dtypes.parse("bfloat")
    for given in (None, 16, "", object()):
        with pytest.raises(ValueError):
            dtypes.parse(given)
