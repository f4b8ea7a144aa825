"""What an expression is, by what its function does with it: a tensor, a module, or what only holds tensors."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dtypetrace.records.text import ParsedFile, lines_of
from dtypetrace.source import receivers
from dtypetrace.tables import attributes

ROOT = Path(__file__).resolve().parents[2]


def objection(text: str) -> str:
    """What is said of the expression between « and »."""
    before, shown, _ = text.replace("«", "\0").replace("»", "\0").split("\0")
    plain = text.replace("«", "").replace("»", "")
    file = ParsedFile(lines_of(plain), ast.parse(plain))
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    (node,) = (
        n
        for n in ast.walk(file.tree)
        if isinstance(n, ast.expr) and file.start(n) == (line, column) and file.segment(n) == shown
    )
    return receivers.no_tensor(file, node)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("net(«out»)\nprint(out.any_field)", "its .any_field is used"),
        ("out = «make(x)»\nnet(out.some_codes)", "its .some_codes is used"),
        ("net(«make(x)».some_codes)", "its .some_codes is used"),
        ("net(«batch»)\nbatch['x']", "indexed with a string"),
        ("net(«batch»['x'])", "indexed with a string"),
        ("a, b = «pair(x)»", "it is unpacked"),
        ("net(«[x, y]»)", "is no tensor"),
        ("for part in parts:\n    net(«part»)\n    part.codes", "its .codes is used"),
        ("with make() as out:\n    net(«out»)\n    out.codes", "its .codes is used"),
        ("net(«self.out»)\nself.out.codes", "its .codes is used"),
        ("net(«parts»)\nparts.append(x)", "its .append is used"),
    ],
)
def test_what_holds_tensors_and_is_none(text, why):
    assert why in objection(text)


@pytest.mark.parametrize(
    "text",
    [
        "net(«x»)\nx.shape, x.grad_fn, x.mean(), x[0], x.__class__",
        "x = x.codes\nnet(«x»)",
        "net(«x»)\nx = make()\nx.codes",
        "x = «x.codes»\nx.sum()",
        "x.my_mark = 1\nnet(«x»)",
        "def f(x):\n    net(«x»)\ndef g(x):\n    x.codes",
        "model = «build()»\nmodel(x)\nmodel.encoder.weight",
        "model = «build()»\nmodel.named_parameters()\nmodel.encoder",
        "net(«x + y»)",
    ],
)
def test_what_may_be_a_tensor_or_a_module(text):
    assert objection(text) == ""


def test_the_table_is_what_torch_has():
    """In a process of its own: libraries that other tests import add attributes to modules."""
    check = "import json; from tools import tensor_attributes as t; print(json.dumps(t.measured()))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    measured = json.loads(done.stdout)
    assert all(attributes.of_tensors(name) for name in measured["tensor"])
    assert all(attributes.of_tensors(name) or attributes.of_modules(name) for name in measured["module"])
