"""Small programs, run under a trace, for the unit tests: a real file on disk, so that lines and columns are real too."""

from __future__ import annotations

import linecache
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from dtypetrace.records import Finding, Place, Recording
from dtypetrace.records.text import LIVE
from dtypetrace.tracing import Trace


@dataclass
class Program:
    """A program that was run, with what the trace says of it."""

    file: str
    text: str
    trace: Trace
    error: BaseException | None
    names: dict

    @property
    def recording(self) -> Recording:
        return self.trace.recording

    @property
    def with_text(self) -> Recording:
        """The recording with the program's text, as the rules see it."""
        return replace(self.recording, text=LIVE)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.trace.findings

    @property
    def only(self) -> Finding:
        assert len(self.findings) == 1, self.findings
        return self.findings[0]

    def line(self, fragment: str) -> int:
        """Number of the one line that holds the fragment."""
        found = [n for n, line in enumerate(self.text.splitlines(), 1) if fragment in line]
        assert len(found) == 1, (fragment, found)
        return found[0]

    def at(self, place: Place) -> str:
        """The stripped source line of a place in the program; what else it is where it lies outside."""
        return (
            self.text.splitlines()[place.line - 1].strip() if place.file == self.file else f"{place.file}:{place.line}"
        )

    def marked(self, place: Place) -> str:
        """The text between a place's columns, on one line."""
        assert place.end_line == place.line
        return linecache.getline(place.file, place.line)[place.column - 1 : place.end_column - 1]


def run(folder: Path, text: str, *, before: str = "", name: str = "program.py", model=None, **options) -> Program:
    """Runs a program in this process under a trace; ``before`` runs first, unwatched, in the same namespace."""
    text = textwrap.dedent(text).lstrip("\n")
    file = folder / name
    file.write_text(text, encoding="utf-8")
    linecache.checkcache(str(file))
    module = ModuleType("program")  # Dynamo imports the module of a function that it inlines
    names: dict = vars(module)
    names["__file__"] = str(file)
    exec("import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + textwrap.dedent(before), names)
    code = compile(text, str(file), "exec", dont_inherit=True)
    trace = Trace(model, script=file, source=folder, **options)
    error = None
    imported, path = set(sys.modules), list(sys.path)
    sys.modules["program"] = module
    try:
        with trace:
            exec(code, names)
    except Exception as raised:
        error = raised
    finally:
        _forget(set(sys.modules) - imported, folder)
        sys.path[:] = path
    return Program(str(file), text, trace, error, names)


def _forget(imported: set[str], folder: Path) -> None:
    """Takes back the imports from the program's folder: the next program may have a module of the same name."""
    for name in imported:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(folder):
            del sys.modules[name]
