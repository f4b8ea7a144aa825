"""The programs of ``test_advice``, run as a module: ``dtypetrace run -m``, and the shown diff followed to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import warm
from followed import IMPORTS, applied
from samples import one_in
from test_advice import PROGRAMS

from dtypetrace.records import Edit

pytestmark = pytest.mark.slow


def inner(folder: Path, text: str) -> tuple[str, Path]:
    """A module of a package, which is run by its name."""
    (folder / "project").mkdir()
    (folder / "project" / "__init__.py").touch()
    file = folder / "project" / "train.py"
    file.write_text(text)
    return "project.train", file


def package(folder: Path, text: str) -> tuple[str, Path]:
    """A package that is run by its name, and imports a part of itself relatively."""
    _, file = inner(folder, text)
    (folder / "project" / "__main__.py").write_text("from . import train\n")
    return "project", file


def collision(folder: Path, module: str) -> dict | None:
    warm.run(["-m", "dtypetrace", "run", "--json", "out.json", "-m", module], folder)
    found = json.loads((folder / "out.json").read_text())["findings"]
    return next((f for f in found if f["kind"] == "collision"), None)


CASES = [(name, (inner, package)[n % 2]) for n, name in enumerate(PROGRAMS)]


@pytest.mark.parametrize("case", one_in(21, CASES, name=lambda case: f"{case[0]}-{case[1].__name__}"))
def test_the_advice_for_a_module_can_be_followed(case, tmp_path):
    name, project = case
    module, file = project(tmp_path, IMPORTS + PROGRAMS[name])
    refused = collision(tmp_path, module)
    origin = refused["culprit"]["origin"]
    assert origin["file"] == str(file)
    assert file.read_text().splitlines()[origin["line"] - 1].endswith("#!")
    for _ in range(3):
        if refused is None:
            break
        edits = [
            Edit(e["file"], tuple(e["start"]), tuple(e["end"]), e["before"], e["after"])
            for e in refused["fix"]["edits"]
        ]
        assert edits, refused["fix"]["why"]
        file.write_text(applied(file.read_text(), tuple(edits), str(file)))
        refused = collision(tmp_path, module)
    assert refused is None
    plain = warm.run(["-m", module], tmp_path)
    assert plain.returncode == 0, plain.stderr
