"""The notebooks run from top to bottom, and what is committed shows what they print.

`DTYPETRACE_REWRITE=1 pytest tests/docs/test_notebooks.py` writes their outputs anew.
"""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path

import pytest
from samples import one_in

ROOT = Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(file: Path):
    """The notebook after all of its cells ran in a fresh kernel; fails where one raises that is not meant to."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(file, 4)
    environment = dict(os.environ, PYTHONPATH=str(ROOT), HF_HUB_OFFLINE="1", NO_COLOR="1")
    nbclient.NotebookClient(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(file.parent)}}
    ).execute(env=environment)
    return book


def settled(cell) -> list:
    """A cell's outputs without what differs between machines and runs, and without the libraries' own warnings."""
    kept: list = []
    for output in (copy.deepcopy(o) for o in cell.outputs if o.get("name") != "stderr"):
        if kept and output.output_type == kept[-1].output_type == "stream":
            kept[-1]["text"] += output["text"]  # something on stderr came between
        else:
            kept.append(output)
    for output in kept:
        output.get("metadata", {}).clear()
        for holder, key in _texts(output):
            holder[key] = re.sub(r"(?:\.\.)*/[^\s\x1b\"'<>]*?(?:site-packages/|/notebooks/)", "", holder[key])
    return kept


def worded(output) -> dict[str, str]:
    """What an output says, by kind, without its numbers, which another machine rounds in another way."""
    texts = {key: holder[key] for holder, key in _texts(output) if not str(key).startswith("image/")}
    kinds = dict.fromkeys(output.get("data", [output.output_type]), "")
    return kinds | {str(key): re.sub(r"\s+", " ", _NUMBER.sub("#", text)) for key, text in texts.items()}


_NUMBER = re.compile(r"[-+]?\d[\d,.]*(?:e[-+]?\d+)?")


def _texts(output):
    data = output.get("data", {})
    yield from ((data, kind) for kind in data if isinstance(data[kind], str))
    yield from ((output, key) for key in ("text", "evalue") if isinstance(output.get(key), str))
    lines = output.get("traceback", [])
    yield from ((lines, n) for n in range(len(lines)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", BOOKS if os.environ.get("DTYPETRACE_REWRITE") else one_in(len(BOOKS), BOOKS[::-1], lambda p: p.stem)
)
def test_it_runs_and_shows_what_is_committed(file):
    import nbformat

    ran, committed = executed(file), nbformat.read(file, 4)
    if os.environ.get("DTYPETRACE_REWRITE"):
        for cell in ran.cells:
            if cell.cell_type == "code":
                cell.outputs = settled(cell)
                cell.metadata.pop("execution", None)
        ran.metadata.pop("widgets", None)
        ran.metadata["language_info"] = {"name": "python"}
        nbformat.write(ran, file)
        committed = nbformat.read(file, 4)
    shown = [[worded(o) for o in settled(cell)] for cell in ran.cells if cell.cell_type == "code"]
    assert shown == [[worded(o) for o in cell.outputs] for cell in committed.cells if cell.cell_type == "code"]
    for cell, kept in zip(ran.cells, committed.cells):
        if cell.cell_type == "code" and "raises-exception" in cell.metadata.get("tags", []):
            (error,) = [o for o in cell.outputs if o.output_type == "error"]
            assert [o.evalue for o in kept.outputs if o.output_type == "error"] == [error.evalue]


def test_they_are_small_and_name_nobody_s_machine():
    texts = {file.name: file.read_text("utf-8") for file in BOOKS}
    assert len(texts) >= 5
    assert sum(len(text.encode()) for text in texts.values()) < 1_000_000
    for name, text in texts.items():
        assert not re.search(r"/(home|root|tmp|work|Users)/", text), name


def test_they_teach_first_and_check_last():
    """What a notebook claims is asserted in its last cell, which is tagged and folded; nothing is wider than a cell."""
    import nbformat

    for file in BOOKS:
        cells = [c for c in nbformat.read(file, 4).cells if c.cell_type == "code"]
        *taught, checks = cells
        assert "checks" in checks.metadata["tags"] and checks.metadata["jupyter"]["source_hidden"], file.name
        assert checks.source.count("assert ") >= 5, file.name
        assert not [c.source for c in taught if re.search(r"^\s*assert ", c.source, re.M)], file.name
        printed = [o["text"] for c in cells for o in c.outputs if o.output_type == "stream"]
        lines = [line for text in [c.source for c in cells] + printed for line in text.splitlines()]
        assert [line for line in lines if len(line) > _WIDEST] == [], file.name


_WIDEST = 88
"""Columns of a cell that a page of usual width shows without scrolling."""
