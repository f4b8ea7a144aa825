"""Data flows one way, hooks -> records -> graph -> rules -> report, and half of the house never touches torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dtypetrace"
MODULES = {path.stem: path for path in sorted(PACKAGE.glob("*.py"))}
CAPTURE = {"hooks", "_recorder", "_births", "_warnings", "_workers", "_origins", "_places", "_modules", "_witness", "_patches", "_compat", "_seam", "_snapshot"}
VIEWS = {"graph", "rules", "report", "autofix"}
WITHOUT_TORCH = set(
    "__init__ __main__ _run _view _explain _source _edits _layout _words records _measures refusals _codes graph rules report saved autofix _ways _patch _fix"
    " _html _svg _pictures _strip _tables _tree _rows _frames _notebook"
    " _changes _silent _costs _promotions _roundtrips _downcasts _narrow_tables _training _no_gradient _ranges _plan _consequences _judgement _remedies _proof _curves _relearn".split()
) & set(MODULES)
LONGEST = 550


def imports(module: str, *, everywhere: bool = True) -> set[str]:
    """What a module imports, the package's own modules as ``.name``; ``everywhere``: inside its functions too."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(MODULES[module].read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not everywhere:
            continue
        if isinstance(node, ast.Import):
            found |= {own(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {own(node.module)} if node.module != "dtypetrace" else {f".{a.name}" for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f".{node.module}"} if node.module else {f".{a.name}" for a in node.names if a.name in MODULES}
        waiting += ast.iter_child_nodes(node)
    return found


def own(name: str) -> str:
    first, _, rest = name.partition(".")
    return f".{rest.partition('.')[0] or '__init__'}" if first == "dtypetrace" else first


def reached(module: str, *, everywhere: bool = True) -> set[str]:
    """Everything that importing a module imports, the package's own ones followed."""
    seen: set[str] = set()
    waiting = [f".{module}"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.startswith("."):
            waiting += imports(name[1:], everywhere=everywhere)
    return seen - {f".{module}"}


def test_the_walk_sees_every_spelling(tmp_path, monkeypatch):
    file = tmp_path / "some.py"
    file.write_text(
        "import os.path, dtypetrace.report\nfrom . import graph\nfrom .rules import find\nfrom dtypetrace import hooks\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nelse:\n    import json\n"
        "def late():\n    from ._codes import TITLES\n"
    )
    monkeypatch.setitem(MODULES, "some", file)
    outer = {"os", ".report", ".graph", ".rules", ".hooks", "typing", "json"}
    assert imports("some", everywhere=False) == outer
    assert imports("some") == outer | {"._codes"}


@pytest.mark.parametrize("module", sorted({"records", "refusals", "_source", "_run"} & set(MODULES)))
def test_standard_library_only(module):
    foreign = {name for name in reached(module) if not name.startswith(".")} - sys.stdlib_module_names
    assert not foreign


def test_records_import_nothing_of_the_house():
    """Their second file lies beside them, and is as plain."""
    assert {name for name in imports("records") if name.startswith(".")} == {"._measures"}
    assert not {name for name in imports("_measures") if name.startswith(".")}


@pytest.mark.parametrize("module", sorted(CAPTURE))
def test_capture_knows_no_view(module):
    assert not {name[1:] for name in reached(module) if name.startswith(".")} & (VIEWS | {"_trace", "__main__"})


@pytest.mark.parametrize("module", sorted(WITHOUT_TORCH - {"__init__", "__main__"}))
def test_the_views_never_import_torch(module):
    assert "torch" not in reached(module)
    assert not {name[1:] for name in reached(module) if name.startswith(".")} & CAPTURE


@pytest.mark.parametrize(("module", "later"), [("graph", {"rules", "report"}), ("rules", {"report"}), ("records", VIEWS)])
def test_no_room_looks_downstream(module, later):
    assert not {name[1:] for name in reached(module) if name.startswith(".")} & later


def test_only_compat_reaches_for_private_torch():
    """Everything that torch does not document is imported in one place, so that a new torch fails in one place."""
    for module, path in MODULES.items():
        if module == "_compat":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
                private = [a.name for a in node.names if a.name.startswith("_")] + [p for p in node.module.split(".") if p.startswith("_")]
                assert not private, f"{path.name}:{node.lineno} imports {private}; go through _compat"


# ---------------------------------------------------------------- as Python does it


def loaded(code: str) -> set[str]:
    """The modules that are loaded after some code ran in a fresh interpreter."""
    command = f"import sys\nold = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - old))"
    ended = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import dtypetrace",
        "import dtypetrace.graph, dtypetrace.rules, dtypetrace.report",
        "import dtypetrace; dir(dtypetrace); hasattr(dtypetrace, 'nothing')",
        "import dtypetrace.__main__ as m\ntry:\n    m.main(['--help'])\nexcept SystemExit:\n    pass",
        "import dtypetrace.__main__ as m\ntry:\n    m.main(['run', '--help'])\nexcept SystemExit:\n    pass",
    ],
)
def test_no_torch_is_loaded(code):
    modules = loaded(code)
    assert "dtypetrace" in modules
    assert "torch" not in modules


def test_the_plain_import_is_light():
    assert not {"rich", "networkx", "pandas", "numpy", "torch"} & loaded("import dtypetrace")


def test_a_recording_is_judged_and_shown_without_torch():
    code = """
from dtypetrace import graph, report, rules
from dtypetrace.records import *
place = Place((Frame("/p/train.py", 3, "<module>", True, 1, 3, 9),))
witnesses = (Witness(0, "input", "float32", (2, 4), "cpu", 0), Witness(1, "weight", "float16", (4, 4), "cpu", 1))
steps = (Step("factory", "ones", 0, "", (), "float32"), Step("cast", "half", 0, "", ("float32",), "float16", explicit=True))
refused = Refused("linear", "addmm.default", "forward", "m", 0, witnesses, "RuntimeError", "no", "p", "DT101", "agree", left=True)
recording = Recording((place,), steps, (), (refused,))
findings = rules.find(recording)
assert findings[0].culprit.dtype == "float32"
report.text(recording, findings); report.to_json(recording, findings); graph.build(recording)
"""
    assert "torch" not in loaded(code)


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda p: p.name)
def test_a_file_is_not_too_long(path):
    lines = path.read_text("utf-8").count("\n")
    assert lines <= LONGEST, "a room gets crowded: give a part of it its own file"


def test_no_file_knows_the_cases():
    """The cases are there to measure dtypetrace. Code that knew one by name would measure nothing."""
    cases = {path.stem for path in (ROOT / "tests" / "cases").rglob("case_*.py")}
    assert cases
    words = cases | {case.removeprefix("case_") for case in cases}
    for path in PACKAGE.iterdir():
        if path.is_file():
            text = path.read_text("utf-8")
            assert not [word for word in words if word in text], path.name


def test_every_module_says_what_it_is():
    for path in MODULES.values():
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path.name
