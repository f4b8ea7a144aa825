"""Edits that go together, positions led back, diffs, and files that are written whole or not at all."""

from __future__ import annotations

import os
import subprocess

import pytest

from dtypetrace.records import Edit
from dtypetrace.records.text import LIVE
from dtypetrace.source.patch import Patch, PatchedFile, Unpatchable, objection


def edit(file, line, before, after):
    """Replaces a text that stands once on a line."""
    content = file.read_text("utf-8").splitlines()[line - 1]
    assert content.count(before) == 1
    start = content.index(before) + 1
    return Edit(str(file), (line, start), (line, start + len(before)), before, after)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("import torch\nx = f(torch.ones(3), 'é')  # kept\ny = x.half()\n", "utf-8")
    return path


def patched(file, *edits):
    patch = Patch()
    changes = [c for e in edits for c in patch.locate([e])]
    return patch, patch.set(changes)


def test_an_edit_is_cut_down_to_what_it_changes(file):
    patched_file = PatchedFile.read(str(file), LIVE)
    inside = patched_file.locate(edit(file, 2, "torch.ones(3)", "torch.ones(3, dtype=torch.half)"))
    around = patched_file.locate(edit(file, 2, "torch.ones(3)", "(torch.ones(3)).to(torch.half)"))
    word = patched_file.locate(edit(file, 3, "x.half()", "x.to(torch.float32)"))
    assert [p.text for p in inside.pieces] == [", dtype=torch.half"]
    assert [p.text for p in around.pieces] == ["(", ").to(torch.half)"]
    assert [(p.end - p.start, p.text) for p in word.pieces] == [(5, "to(torch.float32")]


def test_edits_inside_each_other_go_together(file):
    whole = edit(file, 2, "f(torch.ones(3), 'é')", "(f(torch.ones(3), 'é')).to(torch.half)")
    inner = edit(file, 2, "torch.ones(3)", "torch.ones(3, dtype=torch.half)")
    for order in ((whole, inner), (inner, whole)):
        patch, made = patched(file, *order)
        assert len(made) == 2
        assert (
            patch.texts[str(file)].splitlines()[1]
            == "x = (f(torch.ones(3, dtype=torch.half), 'é')).to(torch.half)  # kept"
        )


def test_two_edits_that_end_together_close_from_the_inside_out(file):
    file.write_text("y = a + b\n")
    patch, made = patched(file, edit(file, 1, "a + b", "(a + b).to(h)"), edit(file, 1, "b", "b.to(h)"))
    assert len(made) == 2 and patch.texts[str(file)] == "y = (a + b.to(h)).to(h)\n"


def test_rivals_are_reported_and_repeats_are_one(file):
    one, other = edit(file, 3, "x.half()", "x.to(torch.float32)"), edit(file, 3, "x.half()", "x.to(torch.float64)")
    patch, made = patched(file, one, one)
    assert patch.texts[str(file)].splitlines()[2] == "y = x.to(torch.float32)"
    patch, made = patched(file, one, other)
    assert len(made) == 1
    patch, made = patched(
        file,
        edit(file, 2, "torch.ones(3)", "torch.ones(3).to(a)"),
        edit(file, 2, "torch.ones(3)", "torch.ones(3).to(b)"),
    )
    assert len(made) == 1


def test_a_later_run_speaks_of_the_patched_text(file):
    patch, _ = patched(file, edit(file, 2, "torch.ones(3)", "torch.ones(3, dtype=torch.half)"))
    patched_file = patch.patched_files[str(file)]
    now = patched_file.text.splitlines()[1]
    start = now.index("f(")
    end = now.index(")  #") + 1
    change = patched_file.locate(
        Edit(str(file), (2, start + 1), (2, end + 1), now[start:end], now[start:end] + ".to(h)")
    )
    patched_file.add(change, 1)
    assert patched_file.text.splitlines()[1] == "x = f(torch.ones(3, dtype=torch.half), 'é').to(h)  # kept"
    # what a change has put there is not to be changed again
    begin = now.index("torch.half")
    assert patched_file.locate(Edit(str(file), (2, begin + 1), (2, begin + 11), "torch.half", "torch.float64")) is None


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_newlines_encoding_and_permissions_are_kept(tmp_path, newline, encoding):
    file = tmp_path / "program.py"
    head = "# -*- coding: latin-1 -*-" if encoding == "latin-1" else "# plain"
    text = f"{head}\nx = f(\n    'é',\n    y,\n)\n"
    file.write_bytes(text.replace("\n", newline).encode(encoding))
    os.chmod(file, 0o750)
    patch = Patch()
    (change,) = patch.locate(
        [Edit(str(file), (2, 5), (5, 2), "f(\n    'é',\n    y,\n)", "f(\n    'é',\n    y,\n).to(h)")]
    )
    patch.set([change])
    patch.write()
    assert file.read_bytes() == text.replace("y,\n)", "y,\n).to(h)").replace("\n", newline).encode(encoding)
    assert file.stat().st_mode & 0o777 == 0o750
    assert list(tmp_path.iterdir()) == [file]


def test_the_diff_can_be_applied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "pkg" / "a.py"
    file.parent.mkdir()
    file.write_text("x = 1\ny = g(x)")
    patch, _ = patched(file, edit(file, 2, "g(x)", "g(x).to(h)"))
    assert patch.diff().startswith("--- a/pkg/a.py\n+++ b/pkg/a.py\n")
    subprocess.run(["patch", "-p1", "-s"], input=patch.diff(), text=True, check=True)
    assert file.read_text() == "x = 1\ny = g(x).to(h)"


def test_nothing_is_written_where_one_file_has_changed(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    for file in (first, second):
        file.write_text("y = g(x)\n")
    patch, _ = patched(first, edit(first, 1, "g(x)", "g(x).to(h)"), edit(second, 1, "g(x)", "g(x).to(h)"))
    second.write_text("y = g(z)\n")
    with pytest.raises(Unpatchable, match="b.py has changed since it was run; nothing was written"):
        patch.write()
    assert (first.read_text(), second.read_text()) == ("y = g(x)\n", "y = g(z)\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_read_only_files_are_reported(file):
    patch, _ = patched(file, edit(file, 3, "x.half()", "x.float()"))
    file.chmod(0o444)
    with pytest.raises(Unpatchable, match="read-only; nothing was written"):
        patch.write()


def test_what_may_not_be_patched(tmp_path):
    project, outside = tmp_path / "project", tmp_path / "elsewhere.py"
    project.mkdir()
    outside.write_text("x = 1\n")
    plain, made, link = project / "a.py", project / "made.py", project / "link.py"
    plain.write_text("x = 1  # generated by nobody\n")
    made.write_text("# Generated by the protocol compiler. DO NOT EDIT!\n")
    link.symlink_to(outside)
    assert objection(str(plain), project) is None
    assert "says that it is generated" in objection(str(made), project)
    assert f"a link to {outside}" in objection(str(link), project) and "lies outside the project" in objection(
        str(link), project
    )
    assert "lies outside the project" in objection(str(outside), project)
    assert "there is no source" in objection("<string>", project)


def test_what_a_change_made_is_known_from_what_was_there(file):
    patch, _ = patched(file, edit(file, 3, "x", "x.to(torch.half)"))
    patched_file = patch.patched_files[str(file)]
    columns = [n for n in range(1, 30) if patched_file.insertion_at(3, n) is not None]
    assert (
        patched_file.text.splitlines()[2][columns[0] - 1 : columns[-1]] == ".to(torch.half)"
        and patched_file.insertion_at(2, 3) is None
    )


def test_what_a_call_was_reported_is_known_at_its_end(file):
    patch, _ = patched(file, edit(file, 2, "torch.ones(3)", "torch.ones(3, dtype=torch.half)"))
    patched_file = patch.patched_files[str(file)]
    line = patched_file.text.splitlines()[1]
    inner = line.index("half)") + 5
    assert patched_file.argument_at(2, inner) is patched_file.pieces[0] and patched_file.insertion_at(2, inner) is None
    assert patched_file.argument_at(2, line.index("'é')") + 4) is None  # no argument was inserted into the outer call
    assert patched_file.argument_at(2, 1) is None and patched_file.argument_at(99, 1) is None
