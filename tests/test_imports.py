"""Data flows one way, hooks -> records -> graph -> rules -> report, and half of the packages never touch torch."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dtypetrace"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
LONGEST = 700

BASE = {"errors", "records", "terminal", "parts", "tables", "source", "program"}
"""What everybody may import: data, tables, the program's text, how a script is run."""
JUDGED = BASE | {"graph", "foresight", "rules"}
SHOWN = JUDGED | {"render", "report"}
ARROWS: dict[str, set[str]] = {
    "records": {"terminal"},
    "errors": set(),
    "program": {"errors", "terminal"},
    "tables": {"errors", "records"},
    "source": {"parts", "records", "tables"},
    "capture": BASE,
    "hooks": BASE | {"capture"},
    "reference": BASE | {"capture"},
    "graph": BASE,
    "foresight": BASE | {"graph"},
    "rules": BASE | {"graph", "foresight"},
    "healing": BASE | {"capture"},
    "lora": JUDGED | {"capture"},
    "compare": JUDGED,
    "render": JUDGED | {"lora", "compare"},
    "report": JUDGED | {"render"},
    "terminal": set(),
    "parts": {"terminal"},
    "saved": SHOWN,
    "results": JUDGED | {"autofix"},
    "view": SHOWN | {"saved"},
    "repair": SHOWN | {"lora", "saved"},
    "autofix": SHOWN | {"lora", "repair", "saved"},
    "dryrun": BASE | {"capture"},
    "tracing": SHOWN | {"capture", "hooks", "healing", "view", "results", "saved", "reference", "dryrun"},
    "commands": set(),
    "integrations": {"capture", "commands", "compare", "errors", "records", "report", "tables", "tracing"},
}
"""Which package may import which others. ``commands`` may import all."""
TORCH = {"capture", "hooks", "healing", "tracing", "reference", "dryrun"}
"""Packages that may import torch; ``lora`` and ``commands`` have files with it and files without."""
MIXED = {"lora", "commands", "integrations"}


def room(module: str) -> str:
    """The package or top-level file that a module belongs to."""
    return module.partition(".")[0]


def imports(module: str, *, everywhere: bool = True) -> frozenset[str]:
    """What a module imports, the package's own modules as ``.name``; ``everywhere``: inside its functions too."""
    return _imports(module, MODULES[module], everywhere)


@functools.cache
def _imports(module: str, path: Path, everywhere: bool) -> frozenset[str]:
    package = (module if path.name == "__init__.py" else module.rpartition(".")[0]).split(".")
    package = [part for part in package if part and part != "__init__"]
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not everywhere:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                found |= own(alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join((["dtypetrace", *above] if node.level else []) + ([node.module] if node.module else []))
            found |= own(base, tuple(alias.name for alias in node.names))
        waiting += ast.iter_child_nodes(node)
    return frozenset(found)


def own(name: str, names: tuple[str, ...]) -> set[str]:
    """An imported module as a set: ``.rules.find`` for the package's own ones, the first part of the name for others."""
    first, _, rest = name.partition(".")
    if first != "dtypetrace":
        return {first}
    below = {f".{rest}.{n}".replace("..", ".") for n in names if f"{rest}.{n}".strip(".") in MODULES}
    whole = {f".{rest or '__init__'}"} if len(below) < len(names) or not names else set()
    return below | whole


@functools.cache
def reached(module: str, *, everywhere: bool = True) -> set[str]:
    """Everything that importing a module imports, the package's own ones followed."""
    seen: set[str] = set()
    waiting = [f".{module}"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name.startswith(".") and name[1:] in MODULES:
            waiting += imports(name[1:], everywhere=everywhere)
            parent = name[1:].rpartition(".")[0]
            waiting += [f".{parent}"] if parent else []
    return seen - {f".{module}"}


def test_every_spelling_of_an_import_is_found(tmp_path, monkeypatch):
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


def test_standard_library_only():
    for module in MODULES:
        if room(module) in BASE:
            foreign = {name for name in reached(module) if not name.startswith(".")} - sys.stdlib_module_names
            assert not foreign, module


def test_arrows_between_packages_point_one_way():
    for module in MODULES:
        if room(module) in ("__init__", "__main__", "commands"):
            continue  # the entry points import what they call
        wrong = {name for name in imports(module) if name.startswith(".")}
        wrong = {name for name in wrong if room(name[1:]) not in ARROWS[room(module)] | {room(module), "__init__"}}
        assert not wrong, module


def test_nothing_imports_an_integration():
    """They import their libraries, so only who uses a library may import its file."""
    wrong = [m for m in MODULES if room(m) != "integrations" for name in imports(m) if room(name[1:]) == "integrations"]
    assert not wrong


def test_no_packages_import_each_other_in_a_circle():
    graphlib.TopologicalSorter(ARROWS).prepare()  # raises CycleError


def test_the_views_never_import_torch():
    for module in MODULES:
        if room(module) not in TORCH | MIXED | {"__init__", "__main__"}:
            assert "torch" not in reached(module), module


def test_only_one_file_reaches_for_private_torch():
    """Everything that torch does not document is imported in one place, so that a new torch fails in one place."""
    for module, path in MODULES.items():
        if module == "capture.private":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
                private = [a.name for a in node.names if a.name.startswith("_")] + [
                    p for p in node.module.split(".") if p.startswith("_")
                ]
                assert not private, f"{path.name}:{node.lineno} imports {private}; go through capture.private"


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


def test_a_run_of_a_script_that_only_imports_torch_loads_what_watching_needs(tmp_path):
    (tmp_path / "script.py").write_text("import torch\n")
    code = f"""
from dtypetrace.__main__ import _run_command
_run_command(["run", {str(tmp_path / "script.py")!r}])
"""
    modules = loaded(code)
    assert "torch" in modules and "dtypetrace.capture.recorder" in modules
    late = ("rules", "autofix", "repair", "saved", "foresight", "healing", "lora", "commands.fix")
    assert not {"rich", "networkx", "pandas", "jinja2"} & modules
    assert not {f"dtypetrace.{name}" for name in late} & modules


def test_a_recording_is_judged_and_shown_without_torch():
    code = """
from dtypetrace import graph, report, rules
from dtypetrace.records import *
place = Place((Frame("/p/train.py", 3, "<module>", True, 1, 3, 9),))
witnesses = (Witness(0, "input", "float32", (2, 4), "cpu", 0), Witness(1, "weight", "float16", (4, 4), "cpu", 1))
events = (Event("factory", "ones", 0, "", (), "float32"), Event("cast", "half", 0, "", ("float32",), "float16", explicit=True))
refused = Refused("linear", "addmm.default", "forward", "m", 0, witnesses, "RuntimeError", "no", "p", "DT101", "agree", left=True)
recording = Recording((place,), events, (), (refused,))
findings = rules.find(recording)
assert findings[0].culprit.dtype == "float32"
report.text(recording, findings); report.to_json(recording, findings); graph.build(recording)
"""
    assert "torch" not in loaded(code)


# ---------------------------------------------------------------- the files


def test_no_file_is_too_long():
    for module, path in MODULES.items():
        lines = path.read_text("utf-8").count("\n")
        assert lines <= LONGEST, f"{module} gets crowded: give a part of it its own file"


def test_no_file_knows_the_cases():
    """The cases are there to measure dtypetrace. Code that knew one by name would measure nothing."""
    cases = {path.stem for path in (ROOT / "tests" / "cases").rglob("case_*.py")}
    assert cases
    words = cases | {case.removeprefix("case_") for case in cases}
    for path in PACKAGE.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            text = path.read_text("utf-8")
            assert not [word for word in words if word in text], path.name


def test_every_module_says_what_it_is():
    for path in MODULES.values():
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path.name


def test_capture_hides_no_mutual_knowledge():
    """A type that is imported only for the type checker is one of a file above: what both need stands below both."""
    for path in (PACKAGE / "capture").rglob("*.py"):
        assert "TYPE_CHECKING" not in path.read_text("utf-8"), path.name
