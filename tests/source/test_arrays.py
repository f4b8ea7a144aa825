"""The literal by which NumPy was told an array's dtype, followed from where torch takes the array."""

from __future__ import annotations

import ast
import textwrap

import pytest

from dtypetrace.records import Frame, Place
from dtypetrace.records.text import ProgramText
from dtypetrace.source import arrays
from dtypetrace.source.operands import located


def told(tmp_path, code: str, dtype: str) -> str:
    """The literal, with its line, for the one call of torch's that takes an array; empty where there is none."""
    path = tmp_path / "program.py"
    path.write_text(f"{textwrap.dedent(code)}\nimport numpy as np\nimport torch\n")
    text = ProgramText.taken({str(path)}, frozenset())
    file = text.parsed(str(path))
    calls = (n for n in ast.walk(file.tree) if isinstance(n, ast.Call))
    call = next(c for c in calls if ast.unparse(c.func).startswith("torch."))
    found = arrays.told(text, Place((located(file, Frame(str(path), 0, "f", True), call),)), dtype)
    return (
        f"{found.line}: {text.line(found.file, found.line)[found.column - 1 : found.end_column - 1]}" if found else ""
    )


@pytest.mark.parametrize(
    ("code", "dtype", "found"),
    [
        ("y = np.zeros(3, dtype=np.int64)\nx = torch.from_numpy(y)", "int64", "1: np.int64"),
        ("y = np.zeros(3, np.int64)\nx = torch.as_tensor(y[1:].copy())", "int64", "1: np.int64"),
        ("y = rows.astype('int32')\nx = torch.tensor(np.stack([y, y]))", "int32", "1: 'int32'"),
        ("y = np.frombuffer(b, dtype=np.int32)\nx = torch.from_numpy(y)", "int32", "1: np.int32"),
        (
            "def make():\n    return np.ones(3, dtype='float64')\nx = torch.from_numpy(make())",
            "float64",
            "2: 'float64'",
        ),
        ("D = np.float64\ny = np.zeros(3, dtype=D)\nx = torch.from_numpy(y)", "float64", "1: np.float64"),
        (
            "class Rows:\n    def __init__(self, kind):\n        self.y = np.zeros(3, dtype=kind)\n"
            "    def take(self):\n        return torch.from_numpy(self.y[0])\nRows(np.float64)",
            "float64",
            "6: np.float64",
        ),
        (
            "def rows(n):\n    return {'y': np.zeros(n, dtype=np.int64)}\n"
            "def collate(samples):\n    return torch.from_numpy(np.stack([s['y'] for s in samples]))",
            "int64",
            "2: np.int64",
        ),
        # several arrays, one of which has this dtype
        (
            "a = np.zeros(3, dtype=np.float32)\nb = np.zeros(3, dtype=np.float64)\n"
            "x = [torch.from_numpy(v[0]) for v in (a, b)]",
            "float64",
            "2: np.float64",
        ),
    ],
)
def test_the_literal_that_told_numpy(tmp_path, code, dtype, found):
    assert told(tmp_path, code, dtype) == found


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ("y = np.zeros(3)\nx = torch.from_numpy(y)", "float64"),  # by default
        ("y = np.zeros(3, dtype=np.float64)\nx = torch.from_numpy(np.sqrt(y))", "float64"),  # it was computed in
        ("y = np.zeros(3, dtype=np.float64)\nx = torch.from_numpy(y * 2)", "float64"),
        (
            "y = np.zeros(3, dtype=np.float64)\ny = rng.normal(3)\nx = torch.from_numpy(y)",
            "float64",
        ),  # one or the other
        ("y = np.zeros(3, dtype=np.int32)\nx = torch.from_numpy(y)", "int64"),  # no: something else is told here
        ("y = np.zeros(3, dtype=np.int64)\nz = table[y]\nx = torch.from_numpy(y)", "int64"),  # an index
        ("y = np.zeros(3, dtype=int)\nx = torch.from_numpy(y)", "int64"),  # no literal that another could replace
        ("def f(y):\n    return torch.from_numpy(y)", "float64"),
        ("y, z = pair(np.zeros(3, dtype=np.int64))\nx = torch.from_numpy(y)", "int64"),
        ("y = np.zeros(3, dtype=np.float64)\nz = np.zeros(3)\nx = [torch.from_numpy(v) for v in (y, z)]", "float64"),
        ("y = torch.zeros(3, dtype=torch.float64).numpy()\nx = torch.from_numpy(y)", "float64"),
    ],
)
def test_nothing_is_said_where_it_is_unclear(tmp_path, code, dtype):
    assert told(tmp_path, code, dtype) == ""
